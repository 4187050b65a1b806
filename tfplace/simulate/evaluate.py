"""What a placement costs: `Simulator` for many placements of one problem, and functions for one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import SIMULATED, Key, StepCost
from tfplace.core.timeline import Timeline
from tfplace.errors import PlacementError, near_names
from tfplace.simulate.event import CHANGES, MOVED, SENT, key, run, spread
from tfplace.simulate.program import compile_problem, make_scratch


class Simulator:
    """Simulates placements of one problem, as docs/simulator.md defines.

    The problem is laid out once; each call only runs the kernel. It owns the arrays the kernel works in, so use one per
    thread.

    Args:
      problem: what is placed.
    """

    source = SIMULATED

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.calls = 0
        self._program = compile_problem(problem)
        self._scratch = make_scratch(self._program)
        # The kernel is compiled anew for each kind of array (other integers, read-only), so it only ever sees this one.
        self._units = np.zeros(problem.num_units, np.int32)

    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """The cost of a step with unit u on device `unit_device[u]`; [U] indices, whether allowed is not checked."""
        self._units[:] = self._checked(unit_device, self.problem.num_units)
        spread(self._program, self._scratch, self._units)
        return self._cost(self._run())

    def key(self, unit_device: ArrayLike) -> Key:
        """(bytes over the limits, step seconds) of `unit_device` [U]; smaller is better. The quickest way to ask.

        Nothing is checked: an index out of range is undefined behaviour.
        """
        self.calls += 1
        self._units[:] = unit_device
        over, step_s = key(self._program, self._scratch, self._units)
        return int(over), float(step_s)

    def keys(self, unit_devices: ArrayLike) -> tuple[LongArray, FloatArray]:
        """Keys of many placements, [B, U]: bytes over the limits [B] and step seconds [B]."""
        keys = [self.key(row) for row in np.asarray(unit_devices, np.int32)]
        return np.array([over for over, _ in keys], np.int64), np.array([step_s for _, step_s in keys])

    def close(self) -> None:
        """Nothing was started."""

    def devices(self, op_device: ArrayLike) -> StepCost:
        """The cost of a step with op v on device `op_device[v]`; [V] indices, whether allowed is not checked.

        What is given for a replicable constant makes no difference.
        """
        return self._cost(self._run_devices(op_device))

    def timeline(self, op_device: ArrayLike) -> Timeline:
        """When everything happens with op v on device `op_device[v]`; [V] indices."""
        self._run_devices(op_device, record=True)
        s, p, graph = self._scratch, self._program, self.problem.graph
        sent, changes = int(s.counter[SENT]), int(s.counter[CHANGES])
        makers = p.maker[s.sent[:sent]]
        return Timeline(
            device_names=self.problem.topology.device_names,
            op_names=graph.op_names,
            op_types=graph.op_types,
            op_device=s.device.copy(),
            start_s=s.start.copy(),
            finish_s=s.finish.copy(),
            moved=tuple(graph.op_names[v] for v in makers.tolist()),
            moved_bytes=p.moved[s.sent[:sent]],
            moved_src=s.device[makers],
            moved_dst=s.sent_to[:sent].copy(),
            moved_start_s=s.sent_start[:sent].copy(),
            moved_finish_s=s.sent_end[:sent].copy(),
            memory_s=s.change_s[:changes].copy(),
            memory_device=s.change_device[:changes].copy(),
            memory_bytes=s.change_bytes[:changes].copy(),
            replicated=graph.replicable.copy(),
        )

    def _run_devices(self, op_device: ArrayLike, record: bool = False) -> float:
        self._scratch.device[:] = self._checked(op_device, self.problem.graph.num_ops)
        return self._run(record)

    def _run(self, record: bool = False) -> float:
        self.calls += 1
        return float(run(self._program, self._scratch, record))

    def _checked(self, devices: ArrayLike, length: int) -> IntArray:
        array = np.asarray(devices, np.int32)
        if array.shape != (length,):
            raise PlacementError(f"devices of shape {array.shape}", f"shape ({length},)")
        if length and (array.min() < 0 or array.max() >= self.problem.num_devices):
            raise PlacementError("a device index out of range", f"0..{self.problem.num_devices - 1}")
        return array

    def _cost(self, step_s: float) -> StepCost:
        s = self._scratch
        compute: FloatArray = s.compute.copy()
        peak: LongArray = s.peak.copy()
        return StepCost(
            step_s=step_s,
            compute_s=compute,
            transfer_s=s.transfer.copy(),
            idle_s=np.maximum(step_s - compute, 0.0),
            peak_bytes=peak,
            limit_bytes=self._program.limit.copy(),
            moved_bytes=int(s.counter[MOVED]),
        )


def timeline_of(problem: Problem, op_device: ArrayLike) -> Timeline:
    """When everything happens with op v on device `op_device[v]`; [V] indices."""
    return Simulator(problem).timeline(op_device)


def simulate_devices(problem: Problem, devices: Mapping[str, str]) -> StepCost:
    """The cost of a step with ops on named devices.

    Args:
      problem: the graph, its devices and what is allowed.
      devices: op name -> device name; replicable constants may be left out, they follow their readers.

    Raises:
      PlacementError: ops are missing, unknown, on a device they may not be on, or apart from others that touch the same
        resource.
      UnknownNameError: no such device.
    """
    op_device = _indices(problem, devices)
    _check_allowed(problem, op_device)
    return Simulator(problem).devices(op_device)


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
    first_of_resource: dict[int, int] = {}
    for v, (unit, device, resource) in enumerate(
        zip(problem.grouping.unit_of.tolist(), op_device.tolist(), graph.resource.tolist(), strict=True)
    ):
        if unit < 0:
            continue
        if not problem.allowed[unit, device]:
            may = ", ".join(names[d] for d in np.flatnonzero(problem.allowed[unit]))
            raise PlacementError(f"{graph.op_names[v]} on {names[device]}", f"a device it may be on: {may}")
        first = first_of_resource.setdefault(resource, v) if resource >= 0 else v
        if op_device[first] != device:
            raise PlacementError(
                f"{graph.op_names[first]} on {names[op_device[first]]} and {graph.op_names[v]} on {names[device]}",
                "ops that touch one resource on one device",
            )
