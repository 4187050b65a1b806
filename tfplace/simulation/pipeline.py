"""The throughput objective: loads of devices in a full pipeline. docs/concepts/objectives.md defines them."""

# Kernels take plain arguments, of which there are many.
# ruff: noqa: PLR0917

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.kernels import allocating_kernel, helper, kernel
from tfplace.core.problem import Problem
from tfplace.core.stepcost import SIMULATED, THROUGHPUT, Key, StepCost
from tfplace.engines.cores import own_cores
from tfplace.errors import PlacementError
from tfplace.simulation.bounds import memory_split
from tfplace.simulation.options import DEFAULT
from tfplace.simulation.program import Program, compile_problem
from tfplace.simulation.relaxation import relax

_SMALL = 64
"""Batches of fewer placements are not worth waking threads for."""


class LoadProgram(NamedTuple):
    """A problem as the arrays from which loads are counted.

    Axes: [U] units, [D] devices, [M] messages that another unit than their maker reads, [R] (message, unit) pairs.

    Attributes:
      seconds: [U, D] that a unit's ops take, also where it may not be.
      unit_bytes: [U] bytes a unit holds on its device.
      maker: [M] unit.
      first: [M + 1] message m is read by the units `reader[first[m]:first[m + 1]]`.
      reader: [R] units other than the maker, each once.
      trips: [M].
      volume: [M] bytes of all trips.
      size: [M] bytes that the copy on another device holds.
      out: [2, D, D] seconds for which the row's device is kept by sending to the column's, per trip and per byte.
      into: [2, D, D] seconds for which the column's device is kept by receiving from the row's, per trip and per byte.
      limit: [D] bytes.
    """

    seconds: FloatArray
    unit_bytes: LongArray
    maker: IntArray
    first: IntArray
    reader: IntArray
    trips: FloatArray
    volume: FloatArray
    size: LongArray
    out: FloatArray
    into: FloatArray
    limit: LongArray


def compile_loads(problem: Problem) -> LoadProgram:
    """Lays a problem out for the kernels that count loads."""
    program, unit_of = compile_problem(problem), problem.grouping.unit_of
    inside = (unit_of >= 0) & ~problem.graph.replicable  # copied constants do not run
    seconds = np.zeros((problem.num_units, problem.num_devices))
    np.add.at(seconds, unit_of[inside], problem.costs.compute_s[inside])
    messages = program.messages[:-1]
    maker = unit_of[messages["maker"]]
    of = np.repeat(np.arange(len(maker)), np.diff(program.messages["reader_first"]))
    pairs = np.stack([of, unit_of[program.reader]], axis=1)
    pairs = np.unique(pairs[(pairs[:, 1] != maker[of]) & (pairs[:, 1] >= 0)], axis=0)
    crossing, index = np.unique(pairs[:, 0], return_inverse=True)
    out, into = _kept(problem, program)
    return LoadProgram(
        seconds=seconds,
        unit_bytes=_unit_bytes(problem, program, maker),
        maker=maker[crossing].astype(np.int32),
        first=np.searchsorted(index, np.arange(len(crossing) + 1)).astype(np.int32),
        reader=pairs[:, 1].astype(np.int32),
        trips=problem.graph.trips[messages["maker"][crossing]],
        volume=messages["volume"][crossing].copy(),
        size=messages["size"][crossing].copy(),
        out=out,
        into=into,
        limit=problem.memory_limit.astype(np.int64),
    )


def pays(problem: Problem) -> list[bool]:
    """[D] whether the device is kept from computing by transfers: all but a host CPU beside accelerators."""
    types = [device.type for device in problem.topology.devices]
    return [kind != "CPU" or {*types} == {"CPU"} for kind in types]


def _kept(problem: Problem, program: Program) -> tuple[FloatArray, FloatArray]:
    links, paying = program.links, np.array(pays(problem), np.float64)
    per_byte = 1.0 / links["bandwidth"]
    out = np.stack([links["latency"] + links["send_s"], per_byte + links["send_s_per_byte"]])
    into = np.stack([links["latency"] + links["receive_s"], per_byte + links["receive_s_per_byte"]])
    return out * paying[:, None], into * paying


def _unit_bytes(problem: Problem, program: Program, maker: IntArray) -> LongArray:
    """[U] variables, and every tensor made that is no view of another, nor a copied constant."""
    held = np.zeros(problem.num_units, np.int64)
    inside = problem.grouping.unit_of >= 0
    np.add.at(held, problem.grouping.unit_of[inside], problem.graph.persistent_bytes[inside])
    messages = program.messages[:-1]
    own = (messages["alias"] < 0) & (maker >= 0) & ~problem.graph.replicable[messages["maker"]]
    np.add.at(held, maker[own], messages["size"][own])
    return held


@kernel
def count_loads(p: LoadProgram, units: IntArray, load: FloatArray, held: LongArray, to: LongArray) -> float:
    """See `_count_loads`."""
    return float(_count_loads(p, units, load, held, to))


@helper
def _count_loads(p: LoadProgram, units: IntArray, load: FloatArray, held: LongArray, to: LongArray) -> float:
    """Counts what every device has to do and to hold.

    Args:
      p: the compiled problem.
      units: [U] devices.
      load: [D] seconds, overwritten.
      held: [D] bytes, overwritten.
      to: [D] scratch.

    Returns:
      Bytes received by all devices.
    """
    for d in range(len(load)):
        load[d], held[d], to[d] = 0.0, 0, -1
    for u in range(len(units)):
        load[units[u]] += p.seconds[u, units[u]]
        held[units[u]] += p.unit_bytes[u]
    moved = 0.0
    for m in range(len(p.maker)):
        home, longest = units[p.maker[m]], 0.0
        for r in range(p.first[m], p.first[m + 1]):
            d = units[p.reader[r]]
            if d == home or to[d] == m:
                continue
            to[d] = m
            load[d] += p.trips[m] * p.into[0, home, d] + p.volume[m] * p.into[1, home, d]
            longest = max(longest, p.trips[m] * p.out[0, home, d] + p.volume[m] * p.out[1, home, d])
            held[d] += p.size[m]
            moved += p.volume[m]
        load[home] += longest
    return moved


@allocating_kernel
def load_keys(p: LoadProgram, units: IntArray, over: LongArray, load_s: FloatArray, first: int, end: int) -> None:
    """Bytes over the limits and largest loads of the placements `first` to `end` of [B, U]."""
    devices = len(p.limit)
    load, held, to = np.zeros(devices), np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    for b in range(first, end):
        _count_loads(p, units[b], load, held, to)
        load_s[b], over[b] = 0.0, 0
        for d in range(devices):
            load_s[b] = max(load_s[b], load[d])
            over[b] += max(held[d] - p.limit[d], 0)


class PipelineLoads(Evaluator):
    """Seconds between samples when a full pipeline runs: the largest load of a device.

    Args:
      problem: what is placed.
      threads: of a batch; by default one per processor this process may use.
    """

    source = SIMULATED
    objective = THROUGHPUT
    options = DEFAULT
    """Loads know no others."""

    def __init__(self, problem: Problem, *, threads: int | None = None) -> None:
        self.problem = problem
        self.program = compile_loads(problem)
        self.threads = len(own_cores()) if threads is None else threads
        self._one = np.zeros((1, problem.num_units), np.int32), np.zeros(1, np.int64), np.zeros(1)
        self._pool: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew in another process, with as many threads as that has processors."""
        return type(self), (self.problem,)

    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """The loads with unit u on device `unit_device[u]`; [U] indices, whether allowed is not checked.

        Of the `StepCost`, `step_s` is the largest load, `transfer_s` the part of a device's load that is sending and
        receiving, and `idle_s` what its load lacks of the largest.

        Raises:
          PlacementError: a wrong length or an index out of range.
        """
        problem, p = self.problem, self.program
        units = np.array(unit_device, np.int32)
        if units.shape != (problem.num_units,):
            raise PlacementError(f"devices of shape {units.shape}", f"shape ({problem.num_units},)")
        if units.size and (units.min() < 0 or units.max() >= problem.num_devices):
            raise PlacementError("a device index out of range", f"0..{problem.num_devices - 1}")
        load = np.zeros(problem.num_devices)
        held, to = np.zeros(len(load), np.int64), np.zeros(len(load), np.int64)
        moved = count_loads(p, units, load, held, to)
        compute = np.bincount(units, p.seconds[np.arange(len(units)), units], minlength=len(load)).astype(np.float64)
        largest = float(load.max())
        return StepCost(
            step_s=largest,
            compute_s=compute,
            transfer_s=np.maximum(load - compute, 0.0),
            idle_s=largest - load,
            peak_bytes=held,
            limit_bytes=p.limit.copy(),
            moved_bytes=round(moved),
            objective=THROUGHPUT,
        )

    def key(self, unit_device: ArrayLike, limit_s: float = np.inf) -> Key:
        """(bytes over the limits, largest load) of `unit_device` [U]; indices are not checked, `limit_s` not used."""
        units, over, load_s = self._one
        units[0] = unit_device
        load_keys(self.program, units, over, load_s, 0, 1)
        return int(over[0]), float(load_s[0])

    def keys(self, unit_devices: ArrayLike, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """`key` of every row of [B, U], on several threads.

        Raises:
          PlacementError: rows of another length.
        """
        units = np.array(unit_devices, np.int32, order="C", ndmin=2)
        if units.ndim != 2 or (len(units) and units.shape[1] != self.problem.num_units):
            raise PlacementError(f"devices of shape {units.shape}", f"shape (placements, {self.problem.num_units})")
        over, load_s = np.zeros(len(units), np.int64), np.zeros(len(units))
        if len(units) < _SMALL or self.threads < 2:
            load_keys(self.program, units, over, load_s, 0, len(units))
            return over, load_s
        self._pool = self._pool or ThreadPoolExecutor(self.threads, thread_name_prefix="tfplace-loads")
        ends = np.linspace(0, len(units), self.threads + 1).astype(int).tolist()
        parts = [
            self._pool.submit(load_keys, self.program, units, over, load_s, first, end)
            for first, end in itertools.pairwise(ends)
        ]
        for part in parts:
            part.result()
        return over, load_s

    @cached_property
    def bound_s(self) -> float:
        """No placement's largest load can be smaller: the larger of the bounds that count compute only.

        See `tfplace.simulation.bounds`: the work divided over the devices, also with the variables' memory, and the
        unit that takes longest.
        """
        unit_s = self.problem.unit_seconds
        if not len(unit_s):
            return 0.0
        split = memory_split(self.problem)
        bounds = [relax(unit_s).seconds, float(unit_s.min(axis=1).max()), 0.0 if split is None else split.seconds]
        return max(bounds) * (1 - 1e-9)

    def close(self) -> None:
        """Ends the threads of batches; they start again when they are needed."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
