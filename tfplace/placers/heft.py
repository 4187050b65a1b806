"""HEFT: heterogeneous earliest finish time."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.flow import Flow, flow, mean_transfer_s
from tfplace.placers.base import Study, compute_devices, unit_persistent_bytes

_MEMORY_FRACTIONS = (1.0, 0.8, 0.6, 0.4)


class Heft:
    """List scheduling by upward rank, each op where it finishes earliest, in an idle gap if one is long enough.

    Departures from the paper: ops of one unit go where the unit's first op in rank order went. Where a unit may be on
    an accelerator, a host CPU is considered only if no accelerator has memory left. A device is considered while the
    variables placed there and the outputs not yet read, in rank order, fit its memory; since that is an estimate, the
    schedule is made again with less memory as long as the simulated placement does not fit. Transfers wait for no
    channel, as in the paper.
    """

    citation = (
        "H. Topcuoglu, S. Hariri, M.-Y. Wu: Performance-effective and low-complexity task scheduling for heterogeneous "
        "computing. IEEE Transactions on Parallel and Distributed Systems 13(3), 2002, section 4.1."
    )

    def place(self, study: Study) -> IntArray:
        """Schedules once, or a few times if memory is short; the best of these."""
        plans = []
        for fraction in _MEMORY_FRACTIONS:
            devices = schedule(study.problem, fraction).unit_device
            key = study.key(devices)
            plans.append((key, devices))
            if key[0] == 0:
                break
        return min(plans, key=lambda plan: plan[0])[1]


class Schedule(NamedTuple):
    """What HEFT plans.

    Attributes:
      unit_device: [U].
      start_s: [V]; 0 for replicable constants.
      finish_s: [V].
    """

    unit_device: IntArray
    start_s: FloatArray
    finish_s: FloatArray

    @property
    def length_s(self) -> float:
        """When the last op finishes."""
        return float(self.finish_s.max())


def upward_rank(problem: Problem, edges: Flow) -> FloatArray:
    """[V] seconds from each op's start to the end of the step along the longest path of mean costs (equation 8)."""
    unit_of = problem.grouping.unit_of
    may = problem.allowed[np.maximum(unit_of, 0)]
    rank: FloatArray = np.where(may, problem.costs.compute_s, 0.0).sum(axis=1) / may.sum(axis=1)
    rank[unit_of < 0] = 0.0
    transfer = mean_transfer_s(problem, edges)
    order = np.argsort(edges.src, kind="stable")
    borders = np.flatnonzero(np.diff(edges.src[order])) + 1
    for rows in reversed(np.split(order, borders)):  # from the last op on, so the ranks of its consumers are final
        if len(rows):
            rank[edges.src[rows[0]]] += (transfer[rows] + rank[edges.dst[rows]]).max()
    return rank


def schedule(problem: Problem, memory_fraction: float = 1.0) -> Schedule:
    """Plans every op in order of decreasing upward rank.

    Args:
      problem: what is placed.
      memory_fraction: of every device's limit that may be planned with.
    """
    return _Planner(problem, memory_fraction).run()


class _Planner:
    """One run of the algorithm; fields grow as ops are planned."""

    def __init__(self, problem: Problem, memory_fraction: float) -> None:
        graph = problem.graph
        self.problem = problem
        self.edges = flow(problem)
        self.unit_device = np.full(problem.num_units, -1, np.int32)
        self.start = np.zeros(graph.num_ops)
        self.finish = np.zeros(graph.num_ops)
        self.gaps = [_Busy() for _ in problem.topology.devices]
        by_dst = np.argsort(self.edges.dst, kind="stable")
        bounds = np.searchsorted(self.edges.dst[by_dst], np.arange(graph.num_ops + 1))
        self.incoming: list[LongArray] = [by_dst[a:b] for a, b in itertools.pairwise(bounds)]
        self.memory = _Memory(problem, self.edges, self.incoming, memory_fraction)
        compute = np.isin(np.arange(problem.num_devices), compute_devices(problem))
        self.preferred: BoolArray = np.logical_and(problem.allowed, compute)
        stuck = ~self.preferred.any(axis=1)
        self.preferred[stuck] = problem.allowed[stuck]

    def run(self) -> Schedule:
        rank = upward_rank(self.problem, self.edges)
        # ops are numbered topologically, so ties, which zero costs make, keep producers first
        for v in np.argsort(-rank, kind="stable").tolist():
            if self.problem.grouping.unit_of[v] >= 0:
                self._plan(v)
        return Schedule(self.unit_device, self.start, self.finish)

    def _plan(self, v: int) -> None:
        unit = int(self.problem.grouping.unit_of[v])
        decided = int(self.unit_device[unit])
        candidates = [decided] if decided >= 0 else self.memory.fitting(unit, v, self._candidates(unit))
        ready = self._ready(v)
        starts = {d: self.gaps[d].earliest(ready[d], float(self.problem.costs.compute_s[v, d])) for d in candidates}
        device = min(candidates, key=lambda d: (starts[d] + self.problem.costs.compute_s[v, d], d))
        self.start[v] = starts[device]
        self.finish[v] = starts[device] + self.problem.costs.compute_s[v, device]
        self.gaps[device].add(self.start[v], self.finish[v])
        if decided < 0:
            self.unit_device[unit] = device
            self.memory.hold_variables(unit, device)
        self.memory.plan(v, device)

    def _candidates(self, unit: int) -> list[list[int]]:
        """Devices to choose among: those preferred, then the others allowed, for want of memory."""
        preferred, allowed = self.preferred[unit], self.problem.allowed[unit]
        return [np.flatnonzero(preferred).tolist(), np.flatnonzero(allowed & ~preferred).tolist()]

    def _ready(self, v: int) -> FloatArray:
        """[D] when all that op v reads could be on each device."""
        rows = self.incoming[v]
        topology = self.problem.topology
        if not len(rows):
            return np.zeros(len(topology.devices))
        src, trips = self.edges.src[rows], self.edges.trips[rows]
        at = self.unit_device[self.problem.grouping.unit_of[src]]
        seconds = topology.latency_s[at] + self.edges.size_bytes[rows][:, None] / topology.bandwidth[at]
        ready: FloatArray = (self.finish[src][:, None] + trips[:, None] * seconds).max(axis=0)
        return ready


class _Busy:
    """When a device is busy: stretches without a gap, ascending."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []

    def earliest(self, ready: float, seconds: float) -> float:
        """The earliest start of at least `ready` with `seconds` idle after it."""
        i = bisect.bisect_right(self.ends, ready)
        while i < len(self.starts) and self.starts[i] < ready + seconds:
            ready = self.ends[i]
            i += 1
        return float(ready)

    def add(self, start: float, end: float) -> None:
        """Takes an idle stretch; joins it with the ones it touches."""
        if end == start:
            return
        i = bisect.bisect_left(self.starts, start)
        if i > 0 and self.ends[i - 1] == start:
            i -= 1
            self.ends[i] = end
        else:
            self.starts.insert(i, start)
            self.ends.insert(i, end)
        if i + 1 < len(self.starts) and self.starts[i + 1] == end:
            self.ends[i] = self.ends[i + 1]
            del self.starts[i + 1], self.ends[i + 1]


class _Memory:
    """An estimate of what each device holds as ops are planned: variables, and outputs until their last reader is."""

    def __init__(self, problem: Problem, edges: Flow, incoming: Sequence[LongArray], fraction: float) -> None:
        self.tensor_bytes = problem.graph.tensor_bytes
        self.first = problem.graph.op_tensors
        self.free = problem.memory_limit * fraction
        self.variables = unit_persistent_bytes(problem)
        self.home = np.full(problem.graph.num_ops, -1, np.int32)
        self.maker = problem.graph.tensor_op
        data = edges.tensor >= 0
        self.readers = np.bincount(edges.tensor[data], minlength=problem.graph.num_tensors)
        self.reads = [[t for t in edges.tensor[rows].tolist() if t >= 0] for rows in incoming]

    def fitting(self, unit: int, v: int, choices: list[list[int]]) -> list[int]:
        """The first choice's devices that have room for the unit, else the next choice's, else the one most free."""
        need = self.variables[unit] + self._outputs(v)
        for choice in choices:
            room = [d for d in choice if self.free[d] >= need]
            if room:
                return room
        return [max((d for choice in choices for d in choice), key=lambda d: self.free[d])]

    def hold_variables(self, unit: int, device: int) -> None:
        self.free[device] -= self.variables[unit]

    def plan(self, v: int, device: int) -> None:
        self.home[v] = device
        for t in range(self.first[v], self.first[v + 1]):
            if self.readers[t]:
                self.free[device] -= self.tensor_bytes[t]
        for t in self.reads[v]:
            self.readers[t] -= 1
            if self.readers[t] == 0:
                self.free[self.home[self.maker[t]]] += self.tensor_bytes[t]

    def _outputs(self, v: int) -> float:
        return float(self.tensor_bytes[self.first[v] : self.first[v + 1]].sum())
