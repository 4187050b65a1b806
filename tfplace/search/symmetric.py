"""Plans for equal hosts with many devices: equal replicas of a step, of which one is searched and simulated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.core.compilation import AUTO, NONE, XLA
from tfplace.core.graph import OpGraph
from tfplace.core.placement import BY_USE, FREE, Placement
from tfplace.core.plan import ALONE, MULTI_WORKER, SEARCHED, STRATEGY, Plan, PlanRow
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.core.topology import Topology
from tfplace.errors import InfeasibleError, InputError, SplitError
from tfplace.local_search.devices import compute_devices, single_device
from tfplace.options import SearchOptions
from tfplace.search.budget import Budget
from tfplace.search.clustered import is_on_one_device
from tfplace.search.compilations import run_otherwise
from tfplace.search.place import placement_of, was_interrupted
from tfplace.search.planning import STOPPED
from tfplace.search.slice_starts import DATA_PARALLEL, PIPELINES, slice_starts
from tfplace.search.step_reader import StepReader
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.mirrored_replicas import simulate_mirrored
from tfplace.simulation.options import Options
from tfplace.simulation.replica import Kind, Replica, cut_replica
from tfplace.simulation.replicas import Hosts, Layout, simulate_replicas

FEW = 8
"""Accelerators up to which a batch is split into slices for all of them, and no symmetry is needed."""

_MOST_OPS = 60_000
"""Ops of a replica that is still read where nothing fits yet: beyond, reading alone takes minutes."""

_MANY_OPS = 30_000
"""Ops of a replica in slices that is still read where something fits, and up to which twice as many slices as devices
are tried."""

_WORSE, _CLEARLY_WORSE = 1.05, 1.25
"""Wider replicas are left out after those that take so many times as long as narrower ones: the first where the wider
ones have many ops."""

_STRETCHES = (12, 48)
"""Clusters into which a device's ops of a compiled replica are cut, so that gradients are sent before all are made."""

_TOO_EARLY = "in the simulation, compiled replicas on several devices send gradients earlier than XLA may let them"

_TO_FIT = (2, 4, 8)
"""Slices that a replica on one device accumulates gradients over, where its whole part of the batch does not fit."""

_NOTE = (
    "replicas are equal, and each computes its part of the batch; one replica and all transfers are simulated. A row's "
    "placement is that of one replica. tfplace runs one process: several hosts need "
    "tf.distribute.MultiWorkerMirroredStrategy"
)

Read = Callable[[int, int], OpGraph]
"""Examples of a replica and the number of its slices -> its step."""

Pose = Callable[[OpGraph, Topology], Problem]
"""A replica's step and its devices -> the problem of placing it there."""


def large_box(topology: Topology) -> Hosts | None:
    """The hosts of a topology that has many accelerators, all alike; None of any other."""
    accelerators = [d for d, device in enumerate(topology.devices) if device.type != "CPU"]
    hosts = range(max(topology.hosts) + 1)
    of = [[d for d in accelerators if topology.hosts[d] == h] for h in hosts]
    if len(accelerators) <= FEW or len({len(devices) for devices in of}) > 1:
        return None
    blocks = [topology.bandwidth[np.ix_(devices, devices)] for devices in of]
    alike = {repr(replace(topology.devices[d], name="any")) for d in accelerators}
    if len(alike) > 1 or not all(np.array_equal(block, blocks[0]) for block in blocks):
        return None
    cpus = [
        next((d for d, one in enumerate(topology.devices) if one.type == "CPU" and topology.hosts[d] == h), of[h][0])
        for h in hosts
    ]
    return Hosts(topology, np.array(of, np.int32), np.array(cpus, np.int32))


def limits_of(part: Topology, hosts: Hosts, limits: Mapping[str, int | str]) -> dict[str, int | str]:
    """Limits of the devices of a replica, as those of the same devices of all hosts.

    Args:
      part: of `Hosts.part`.
      hosts: all devices.
      limits: pattern of device names -> bytes; later ones win.

    Raises:
      InputError: a device has another limit than its like on another host.
      UnknownNameError: a pattern matches no device.
    """
    topology = hosts.topology
    given = {topology.device_names[d]: size for pattern, size in limits.items() for d in topology.match(pattern)}
    first = [d for d, h in enumerate(topology.hosts) if h == 0]
    for d in first:
        sizes = {str(given.get(topology.device_names[hosts.beside(d, h)])) for h in range(hosts.count)}
        if len(sizes) > 1:
            raise InputError(
                f"limits of {' and '.join(sorted(sizes))} for {topology.device_names[d]} and its counterparts",
                "one limit for the same device of every host, with a pattern such as '*GPU:*'",
            )
    return {name: given[name] for name in part.device_names if name in given}


def make_symmetric_plan(
    read: Read,
    pose: Pose,
    search: Callable[[Problem, SearchOptions], Placement],
    options: SearchOptions,
    hosts: Hosts,
    *,
    examples: int,
    exact: bool = False,
) -> Plan:
    """Sets ways to run a step on many devices side by side: equal replicas on one device or several of a host each.

    Replicas on one device are data parallelism, those on several are pipelines and what a search finds. Each has its
    part of the batch, rounded up.

    Args:
      read: see `Read`. Raises SplitError where the step cannot be split.
      pose: see `Pose`.
      search: places a problem.
      options: of the search, checked; the budget is for all searches together.
      hosts: the devices.
      examples: in the batch of a step, all replicas together.
      exact: see `tfplace.search.planning.make_plan`.

    Raises:
      InputError: rules that pin, forbid or colocate ops.
      SplitError: no replica could be read.
    """
    if options.constraints is not None and options.constraints.patterns:
        raise InputError(
            f"rules that pin, forbid or colocate ops on {hosts.topology.name!r}",
            f"no such rules on more than {FEW} accelerators, where all replicas are placed like the first",
        )
    run = _Run(StepReader(read), pose, search, options, hosts, examples=examples)
    stopped: tuple[str, ...] = ()
    try:
        run.try_all()
    except KeyboardInterrupt:
        stopped = (STOPPED,)
    if not run.problems:
        raise run.failed or KeyboardInterrupt
    kept = run.rows if options.compile == AUTO else [row for row in run.rows if row.compile == options.compile]
    return Plan(
        rows=tuple(sorted(kept, key=lambda row: (*row.cost.key, row.simplicity))),
        model=run.problems[0].graph.name,
        topology_name=hosts.topology.name,
        examples=examples,
        exact=exact,
        notes=(*run.log, *stopped, _NOTE),
        topology_fingerprint=hosts.topology.fingerprint,
    )


class _Run:
    """What has been tried so far.

    Attributes:
      rows: found.
      problems: that were read.
      log: what could not be tried, and why.
      failed: why the first of those could not be read.
    """

    def __init__(
        self,
        steps: StepReader,
        pose: Pose,
        search: Callable[[Problem, SearchOptions], Placement],
        options: SearchOptions,
        hosts: Hosts,
        *,
        examples: int,
    ) -> None:
        self._steps, self._pose, self._search, self._options = steps, pose, search, options
        self._hosts, self._examples = hosts, examples
        self.rows: list[PlanRow] = []
        self.problems: list[Problem] = []
        self.log: list[str] = []
        self.failed: SplitError | None = None

    def try_all(self) -> None:
        """Replicas on one device for all devices, then wider ones up to clearly worse ones, then fewer ones.

        Where there are none of so many, half as many are tried, and so on. Fewer are those of one host, then half as
        many as long as fewer were faster, then one.
        """
        size, count = self._hosts.size, self._hosts.count * self._hosts.size
        self._on_one(count)
        most = count
        while most > size and all(row.replicas != most for row in self.rows):  # as of more than there are examples
            most //= 2
            self._on_one(most)
        widths = [width for width in (size // 4, size // 2, size) if width > 1 and size % width == 0]
        before = self._best_s(count)
        for width in widths:
            self._on_several(width, len(widths))
            narrower, before = before, self._best_s(count // width)
            worse = _WORSE if self._steps.ops(2 * width) > _MANY_OPS // 2 else _CLEARLY_WORSE
            if np.isfinite(before) and before > worse * narrower and width < size:
                times = f"{before / narrower:.2f} times as long as narrower ones"
                self.log.append(f"replicas on over {width} devices: not tried, as those on {width} take {times}")
                break
        fewer, before = size, np.inf
        if size < most:
            before = self._best_s(most)
            self._on_one(size)
        while fewer > 1 and self._best_s(fewer) < before:
            before, fewer = self._best_s(fewer), fewer // 2
            self._on_one(fewer)
        if fewer > 1:
            self._on_one(1)

    def _best_s(self, count: int) -> float:
        """Seconds of the fastest way with so many replicas that fits."""
        fitting = (row.cost.step_s for row in self.rows if row.replicas == count and row.cost.feasible)
        return min(fitting, default=np.inf)

    def _problem(self, count: int, slices: int, width: int) -> Problem | None:
        """A replica of so many, in slices; None, with a note, where there is none."""
        part = -(-self._examples // count)
        what = f"{count} replicas" if count > 1 else ALONE
        what += f" on {width} devices" if width > 1 else ""
        what += f" in {slices} slices" if slices > 1 else ""
        if self._examples < count:
            self.log.append(f"{what}: not tried, as a batch has {self._examples} examples")
            return None
        fits = any(row.cost.feasible for row in self.rows)
        most = _MANY_OPS if slices > 1 and fits else _MOST_OPS
        if self._steps.ops(slices) > most:
            self.log.append(f"{what}: not tried, as it has over {most:,} ops")
            return None
        try:
            problem = self._pose(self._steps.read(part, slices), self._hosts.part(width))
        except SplitError as error:
            self.failed = self.failed or error
            self.log.append(f"{what}: {error}")
            return None
        self.problems.append(problem)
        return problem

    def _scaled(self) -> Problem | None:
        """The whole batch on one device by sizes of smaller ones, if it does not fit; else it is read, to be run."""
        graph = self._steps.scaled(self._examples)
        if graph is None:
            return None
        problem = self._pose(graph, self._hosts.part(1))
        if Simulator(problem)(single_device(problem, int(compute_devices(problem)[0]))).feasible:
            return None
        self.log.append(f"{ALONE}: does not fit, judged by the sizes of smaller batches")
        return problem

    def _on_one(self, count: int) -> None:
        most = 1.0
        for slices in (1, *_TO_FIT):
            if slices > max(self._examples // count, 1):
                return
            if slices < most:
                continue
            problem = self._scaled() if count == slices == 1 else None
            problem = problem or self._problem(count, slices, 1)
            if problem is None:
                return
            units = single_device(problem, int(compute_devices(problem)[0]))
            whole = self._placed(problem, units, ALONE if count == 1 else DATA_PARALLEL)
            for placement in self._both_ways(whole):
                if count == 1:
                    self._keep(ALONE, placement, self._alone(placement), 1)
                else:
                    self._exchanged(placement, count)
            if np.isfinite(self._best_s(count)):
                return
            most = _least_slices(whole) if slices == 1 else most
        if most > _TO_FIT[-1]:
            self.log.append(f"replicas on one device ({count} in all): not even {_TO_FIT[-1]} slices fit")

    def _on_several(self, width: int, searches: int) -> None:
        count = self._hosts.count * (self._hosts.size // width)
        slices = 2 * width if self._steps.ops(2 * width) <= _MANY_OPS else width
        slices = min(slices, self._examples // count)
        problem = self._problem(count, slices, width) if slices > 1 else None
        if problem is None:
            return
        starts = slice_starts(problem, None, self._options.seed, PIPELINES).placements
        best = min(starts, key=lambda start: start.cost.key, default=None)
        rows = []
        for start in starts:
            for placement in self._both_ways(start) if start is best else [start]:
                rows += self._exchanged(placement, count)
        with contextlib.suppress(InfeasibleError):
            searched = replace(self._searched(problem, best, searches), placer=SEARCHED)
            for placement in self._both_ways(searched):
                self._exchanged_if_faster(placement, count, rows)
            if was_interrupted(searched):
                raise KeyboardInterrupt  # what was found by then is told

    def _exchanged_if_faster(self, placement: Placement, count: int, others: list[PlanRow]) -> None:
        """What a search found alone may be slower than what it began with, once replicas wait for one another."""
        assert placement.problem is not None
        alike = [row.cost.key for row in others if row.compile == placement.problem.compile]
        rows = self._exchanged(placement, count)
        if alike and min(row.cost.key for row in rows) >= min(alike):
            self.rows = [row for row in self.rows if row not in rows]
            self.log.append(f"{rows[0].name}: the search found nothing faster than its start")

    def _searched(self, problem: Problem, init: Placement | None, searches: int) -> Placement:
        budget = Budget.parse(self._options.budget)
        share: float | int = (
            budget.seconds / searches if budget.seconds is not None else max((budget.evaluations or 0) // searches, 1)
        )
        wanted = replace(self._options, slices=None, budget=share, init=init, topology=None, baselines=())
        return self._search(_on_accelerators(problem, init), wanted)

    def _placed(self, problem: Problem, units: object, placer: str) -> Placement:
        units = np.asarray(units, np.int32)
        cost = Simulator(problem)(units)
        bound_s = lower_bound(problem).seconds
        return placement_of(problem, units, cost, bound_s=bound_s, placer=placer, seed=self._options.seed, baselines={})

    def _both_ways(self, placement: Placement) -> list[Placement]:
        assert placement.problem is not None
        other = run_otherwise(placement, Simulator(placement.problem))
        return [one for one in (placement, other) if one is not None]

    def _exchanged(self, placement: Placement, count: int) -> list[PlanRow]:
        """Adds the rows of replicas that are placed so."""
        problem = placement.problem
        assert problem is not None
        replicas = list(cut_ways(placement))
        costs = [simulate_replicas(replica, self._hosts, count) for replica in replicas]
        cost, replica = min(zip(costs, replicas, strict=True), key=lambda one: one[0].step_s)
        layout = Layout(replica, self._hosts, count)
        rows = [self._keep(placement.placer, placement, self._with_memory(cost, placement, layout), count)]
        if layout.width == 1 and problem.compile == NONE:
            way = MULTI_WORKER if len(set(layout.host_of)) > 1 else STRATEGY
            mirrored = simulate_mirrored(replica, self._hosts, count)
            with_memory = self._with_memory(mirrored, placement, layout, mirrored=True)
            rows.append(self._keep(way, placement, with_memory, count))
        return rows

    def _keep(self, way: str, placement: Placement, cost: StepCost, count: int) -> PlanRow:
        problem = placement.problem
        assert problem is not None and problem.graph.slices is not None
        slices = problem.graph.slices
        unsure = problem.compile == XLA and not is_on_one_device(problem, placement.op_device)
        differs = bool(slices.differences) and (count > 1 or len(slices.sizes) > 1)
        kept = None if way in (STRATEGY, MULTI_WORKER) else replace(placement, compile=problem.compile)
        row = PlanRow(
            way=way.partition(" (")[0],
            slices=slices.sizes,
            compile=problem.compile,
            cost=cost,
            placement=kept,
            same_numbers=not differs,
            differs=slices.verdict if differs else "",
            obstacle=_TOO_EARLY if unsure else "",
            replicas=count,
        )
        self.rows.append(row)
        return row

    def _alone(self, placement: Placement) -> StepCost:
        """The cost of one replica, on all devices of the topology."""
        own = {name: d for d, name in enumerate(placement.device_names)}
        at = np.array([own.get(name, -1) for name in self._hosts.topology.device_names])
        cost = placement.cost
        compute_s: FloatArray = np.append(cost.compute_s, 0.0)[at]
        return replace(
            cost,
            compute_s=compute_s,
            transfer_s=np.append(cost.transfer_s, 0.0)[at],
            idle_s=np.maximum(cost.step_s - compute_s, 0.0),
            peak_bytes=np.append(cost.peak_bytes, 0)[at],
            limit_bytes=self._limits(placement),
        )

    def _limits(self, placement: Placement) -> LongArray:
        """[D] of the topology's devices: those of the replica's devices of the type."""
        assert placement.problem is not None
        limit = {
            device.type: int(size)
            for device, size in zip(placement.problem.topology.devices, placement.problem.memory_limit, strict=True)
        }
        return np.array([limit[device.type] for device in self._hosts.topology.devices], np.int64)

    def _with_memory(self, cost: StepCost, placement: Placement, layout: Layout, *, mirrored: bool = False) -> StepCost:
        """A cost with what devices hold at most.

        That is what a replica alone would hold, without the slots of variables that others own, and with the tensors
        that are added up for one that a device owns itself. Under the strategy it is all slots, and at the end of the
        backward pass all gradients, twice.
        """
        one, hosts = layout.replica, layout.hosts
        peak = np.zeros(len(hosts.topology.devices), np.int64)
        held, home = placement.cost.peak_bytes, one.problem.graph.persistent_bytes
        gradient = {int(one.weight[m.reader]): m.size_bytes for m in one.messages if one.kind[m.reader] == Kind.SUM}
        slots = {weight: size - int(home[weight]) for weight, size in one.size_bytes.items()}
        terms = max(layout.per_host, 1) + len(set(layout.host_of)) - 1
        for r in range(layout.count):
            for d in range(one.problem.num_devices):
                device = layout.device(d, r)
                mine = [weight for weight, at in one.home.items() if at == d]
                owned = [weight for weight in mine if layout.owner[weight] == device]
                if mirrored:
                    ended = sum(one.size_bytes[w] for w in mine) + 2 * sum(gradient.get(w, 0.0) for w in mine)
                    peak[device] = max(int(held[d]), int(ended))
                else:
                    added = max((terms * gradient.get(weight, 0.0) for weight in owned), default=0.0)
                    kept = sum(slots[w] for w in owned) - sum(slots[w] for w in mine)
                    peak[device] += int(held[d]) + int(kept) + int(added)
        return replace(cost, peak_bytes=peak, limit_bytes=self._limits(placement))


def _on_accelerators(problem: Problem, init: Placement | None) -> Problem:
    """The problem without the host but for what is there already: all replicas on a host share it, and one is searched.

    Args:
      problem: of a replica.
      init: where its search begins.
    """
    accelerators = np.isin(np.arange(problem.num_devices), compute_devices(problem))
    elsewhere = np.logical_and(problem.allowed, accelerators)
    allowed = np.where(elsewhere.any(axis=1, keepdims=True), elsewhere, problem.allowed)
    if init is not None:
        units = np.arange(problem.num_units)
        at = problem.gather(init.op_device)
        allowed[units, at] = problem.allowed[units, at]
    return replace(problem, allowed=allowed)


def _least_slices(placement: Placement) -> float:
    """Slices below which a step that is all on one device cannot fit: only what is of examples gets less."""
    problem, peak, limit = placement.problem, placement.cost.peak_bytes, placement.cost.limit_bytes
    assert problem is not None
    d = int((peak - limit).argmax())
    kept = int(problem.graph.persistent_bytes[placement.op_device == d].sum())
    return float((peak[d] - kept) / (limit[d] - kept)) if limit[d] > kept else np.inf


def cut_ways(placement: Placement) -> Iterator[Replica]:
    """A placed replica as it may run: in its order, or, on one device, also with variables read as they are needed."""
    problem = placement.problem
    assert problem is not None
    several = np.isin(compute_devices(problem), placement.op_device[~problem.graph.replicable]).sum() > 1
    if problem.compile == XLA:
        for stretches in (1,) if several else _STRETCHES:
            yield cut_replica(problem, placement.op_device, placement.phases, stretches)
        return
    if several:
        yield cut_replica(problem, placement.op_device, placement.phases)
        return
    for order in (FREE, BY_USE):
        phases = Simulator(problem, Options(phase_orders=(order,))).phases(placement.op_device)[1]
        yield cut_replica(problem, placement.op_device, phases)
