"""The cost of placements, simulated: `Simulator` for many placements of one problem, and functions for one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.critical_path import CriticalPath
from tfplace.core.evaluator import Evaluator
from tfplace.core.placement import FREE
from tfplace.core.problem import Problem
from tfplace.core.stepcost import SIMULATED, Key, StepCost
from tfplace.core.timeline import Timeline
from tfplace.engines.cores import own_cores
from tfplace.errors import PlacementError, near_names
from tfplace.simulation.batch import Kernel, Threads
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.critical import critical_path
from tfplace.simulation.event import CHANGES, MOVED, SENT, Batch
from tfplace.simulation.holdings import Holding, holdings_at_peak
from tfplace.simulation.options import DEFAULT, GIVEN, PHASE_ORDERS, WITHOUT_PHASES, Options
from tfplace.simulation.room import roomy


class Simulator(Evaluator):
    """Simulates placements of one problem, as docs/reference/simulator.md defines.

    The problem is prepared once, and each call only runs the kernel. A simulator owns the kernel's work arrays, so use
    one per thread.

    Args:
      problem: the problem whose placements are simulated.
      options: simulation options.
      phases: [V] the phase of each op on its device, as in `Placement.phases`. If given, all placements are simulated
        with these phases, and `options.phase_orders` is ignored.
      threads: number of threads for batches; by default one for each processor that this process may use.
    """

    source = SIMULATED
    options: Options

    def __init__(
        self,
        problem: Problem,
        options: Options = DEFAULT,
        *,
        phases: IntArray | None = None,
        threads: int | None = None,
    ) -> None:
        self.problem = problem
        self.options = options
        self.calls = 0
        self.threads = len(own_cores()) if threads is None else threads
        self._phases = phases
        self._kernel = Kernel(problem, options, phases)
        self._scratch = self._kernel.scratch()
        # The kernel is compiled anew for each kind of array (other integers), so it only ever sees these.
        self._one = Batch(np.zeros((1, problem.num_units), np.int32), np.zeros(1, np.int64), np.zeros(1))
        self._pool: Threads | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes a new simulator in another process, with as many threads as that has processors."""
        return partial(type(self), phases=self._phases), (self.problem, self.options)

    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """The cost of a step with unit u on device `unit_device[u]`, [U] indices. Does not check which are allowed."""
        units = self._checked(unit_device, self.problem.num_units)
        return self._cost(self._run(self.problem.spread(units)))

    def key(self, unit_device: ArrayLike, limit_s: float = np.inf) -> Key:
        """(bytes over the limits, step seconds) of a placement; smaller is better. The fastest way to evaluate.

        Indices are not checked: an index out of range is undefined behavior.

        Args:
          unit_device: [U] device indices.
          limit_s: the simulation stops as soon as the step is known to take longer. The key is then
            `(FAILED_BYTES, infinite)`, which loses against every completed simulation. Other steps have the same key as
            without a limit.
        """
        self._one.units[0] = unit_device
        self._kernel.keys(self._scratch, self._one, limit_s, 0, 1)
        self.calls += 1
        return int(self._one.over[0]), float(self._one.step_s[0])

    def keys(self, unit_devices: ArrayLike, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """The `key` of every row of [B, U], on several threads: bytes over the limits [B] and step seconds [B].

        Raises:
          PlacementError: rows of a wrong length.
        """
        units = np.array(unit_devices, np.int32, order="C", ndmin=2)
        if units.ndim != 2 or (len(units) and units.shape[1] != self.problem.num_units):
            raise PlacementError(f"devices of shape {units.shape}", f"shape (placements, {self.problem.num_units})")
        batch = Batch(units, np.zeros(len(units), np.int64), np.zeros(len(units)))
        self.calls += len(units)
        if self.threads < 2 or len(units) < 2:
            self._kernel.keys(self._scratch, batch, limit_s, 0, len(units))
        else:
            self._pool = self._pool or Threads(self._kernel, self.threads)
            self._pool.keys(batch, limit_s)
        return batch.over, batch.step_s

    def critical_path(self, unit_device: ArrayLike) -> tuple[CriticalPath, Key]:
        """The critical path with unit u on device `unit_device[u]`, [U] indices, and the key of the placement.

        As in `key`, indices are not checked.
        """
        step_s = self._run(self.problem.spread(np.asarray(unit_device, np.int32)))
        over = np.maximum(self._scratch.fields.devices["peak"] - self._kernel.program.limit, 0).sum()
        path = critical_path(self._kernel.at, self._scratch, self.problem.num_units)
        return path, (int(over), step_s)

    @cached_property
    def fitting(self) -> Problem:
        """The problem with units only where they fit, if each fits somewhere; see `tfplace.simulation.room`."""
        return roomy(self.problem, self._kernel.program) or self.problem

    @cached_property
    def bound_s(self) -> float:
        """Lower bound of the step seconds of all placements; see `tfplace.simulation.bounds`."""
        return lower_bound(self.problem, self.options).seconds

    def otherwise(self, unit_device: ArrayLike) -> StepCost | None:
        """See `Evaluator.otherwise`. None if the problem has no costs for the other way."""
        units = self._checked(unit_device, self.problem.num_units)
        return None if self._otherwise is None else self._otherwise.devices(self.problem.spread(units))

    @cached_property
    def _otherwise(self) -> Simulator | None:
        other = self.problem.otherwise
        return None if other is None else Simulator(other, self.options, phases=self._phases)

    def close(self) -> None:
        """Ends the threads for batches. They start again when needed."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def devices(self, op_device: ArrayLike) -> StepCost:
        """The cost of a step with op v on device `op_device[v]`, [V] indices. Does not check which are allowed.

        Devices of replicable constants are ignored.
        """
        return self._cost(self._run(self._checked(op_device, self.problem.graph.num_ops)))

    def phases(self, op_device: ArrayLike) -> tuple[str, IntArray | None]:
        """The best order of phases with op v on device `op_device[v]`, [V] indices.

        Returns:
          The name of the order, and [V] the phase of each op on its device, -1 for none; None without phases.
        """
        _, order, phases = self.ordered(op_device)
        return order, phases

    def ordered(self, op_device: ArrayLike) -> tuple[StepCost, str, IntArray | None]:
        """`devices` and `phases` together: the cost of a step, the name of its order, and its phases."""
        cost = self.devices(op_device)
        if self._phases is not None:
            return cost, GIVEN, self._phases
        order = PHASE_ORDERS[int(self._scratch.fields.chosen[0])]
        return cost, order, None if order == FREE else self._scratch.fields.phase.copy()

    def timeline(self, op_device: ArrayLike) -> Timeline:
        """The timeline of a step with op v on device `op_device[v]`, [V] indices."""
        self._run(self._checked(op_device, self.problem.graph.num_ops))
        s, p, graph = self._scratch.fields, self._kernel.program, self.problem.graph
        transfers = s.transfers[: s.counter[SENT]]
        changes = s.changes[: s.counter[CHANGES]]
        makers = p.messages["maker"][transfers["message"]]
        return Timeline(
            device_names=self.problem.topology.device_names,
            op_names=graph.op_names,
            op_types=graph.op_types,
            op_device=s.device.astype(np.int32),
            start_s=s.start.copy(),
            finish_s=s.finish.copy(),
            moved=tuple(graph.op_names[v] for v in makers.tolist()),
            moved_bytes=p.messages["moved"][transfers["message"]],
            moved_src=transfers["src"].copy(),
            moved_dst=transfers["dst"].copy(),
            moved_start_s=transfers["start"].copy(),
            moved_finish_s=transfers["end"].copy(),
            memory_s=changes["when"].copy(),
            memory_device=changes["device"].copy(),
            memory_bytes=changes["in_use"].copy(),
            replicated=graph.replicable.copy(),
            parallel=self.options.parallel,
        )

    def holdings(self, op_device: ArrayLike, device: int) -> list[Holding]:
        """What `device` holds at its peak, with op v on device `op_device[v]`, [V] indices."""
        self._run(self._checked(op_device, self.problem.graph.num_ops))
        return holdings_at_peak(self._kernel.program, self._scratch.fields, device)

    def _run(self, op_device: IntArray) -> float:
        self.calls += 1
        self._scratch.fields.device[:] = op_device
        return self._kernel.run(self._scratch)

    def _checked(self, devices: ArrayLike, length: int) -> IntArray:
        array = np.asarray(devices, np.int32)
        if array.shape != (length,):
            raise PlacementError(f"devices of shape {array.shape}", f"shape ({length},)")
        if length and (array.min() < 0 or array.max() >= self.problem.num_devices):
            raise PlacementError("a device index out of range", f"0..{self.problem.num_devices - 1}")
        return array

    def _cost(self, step_s: float) -> StepCost:
        devices = self._scratch.fields.devices
        compute: FloatArray = devices["compute"].copy()
        peak: LongArray = devices["peak"].copy()
        return StepCost(
            step_s=step_s,
            compute_s=compute,
            transfer_s=devices["transfer"].copy(),
            idle_s=np.maximum(step_s - compute - devices["work"], 0.0),
            peak_bytes=peak,
            limit_bytes=self._kernel.program.limit.copy(),
            moved_bytes=int(self._scratch.fields.counter[MOVED]),
        )


def timeline_of(problem: Problem, op_device: ArrayLike, options: Options = DEFAULT) -> Timeline:
    """The timeline of a step with op v on device `op_device[v]`, [V] indices."""
    return Simulator(problem, options).timeline(op_device)


def timeline_in_phases(problem: Problem, op_device: ArrayLike, phases: IntArray | None) -> Timeline:
    """The timeline of a step with a placement's phases, or without phases if they are None; see `Placement.phases`."""
    return Simulator(problem, WITHOUT_PHASES, phases=phases).timeline(op_device)


def simulate_devices(
    problem: Problem, devices: Mapping[str, str], options: Options = DEFAULT, *, phases: IntArray | None = None
) -> StepCost:
    """The cost of a step with ops on named devices.

    Args:
      problem: the graph, the devices and the rules.
      devices: op name -> device name. Replicable constants may be left out, since they follow their readers.
      options: simulation options.
      phases: see `Simulator`.

    Raises:
      PlacementError: ops are missing or unknown, on a device that they may not use, or apart from ops that they must
        stay with.
      UnknownNameError: no such device.
    """
    op_device = _indices(problem, devices)
    _check_allowed(problem, op_device)
    return Simulator(problem, options, phases=phases).devices(op_device)


def _indices(problem: Problem, devices: Mapping[str, str]) -> IntArray:
    graph = problem.graph
    missing = [op for v, op in enumerate(graph.op_names) if op not in devices and not graph.replicable[v]]
    if missing:
        raise PlacementError(
            f"devices for {len(devices)} ops, without {', '.join(missing[:3])}"
            + (f" and {len(missing) - 3} more" if len(missing) > 3 else ""),
            f"a device for every op of {graph.name!r}",
        )
    for op in devices:
        if op not in graph.index:
            near = near_names(op, graph.op_names)
            raise PlacementError(
                f"a device for {op!r}", f"ops of {graph.name!r}", f"Near names: {', '.join(near)}." if near else ""
            )
    index = {name: problem.topology.index(name) for name in set(devices.values())}
    return np.array([index[devices[op]] if op in devices else 0 for op in graph.op_names], np.int32)


def _check_allowed(problem: Problem, op_device: IntArray) -> None:
    graph, names = problem.graph, problem.topology.device_names
    first_of_unit: dict[int, int] = {}
    for v, (unit, device) in enumerate(zip(problem.grouping.unit_of.tolist(), op_device.tolist(), strict=True)):
        if unit < 0 or graph.replicable[v]:  # what is copied makes no difference
            continue
        if not problem.allowed[unit, device]:
            may = ", ".join(names[d] for d in np.flatnonzero(problem.allowed[unit]))
            raise PlacementError(f"{graph.op_names[v]} on {names[device]}", f"a device that it may be on: {may}")
        first = first_of_unit.setdefault(unit, v)
        if op_device[first] != device:
            raise PlacementError(
                f"{graph.op_names[first]} on {names[op_device[first]]} and {graph.op_names[v]} on {names[device]}",
                "ops that touch one resource, or that TensorFlow or a rule keeps together, on one device",
            )
