"""What is missing when nothing fits: devices, bytes, the largest tensors there, and ways out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.errors import InfeasibleError, Shortage
from tfplace.formatting import format_bytes
from tfplace.search.impossible import impossible
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.holdings import Holding, HoldingKind

_LARGEST = 5


def infeasible(problem: Problem, op_device: IntArray, cost: StepCost, tried: int) -> InfeasibleError:
    """The error for a problem whose best placement, [V] devices, still exceeds some memory; see also `impossible`.

    Args:
      problem: what was to be placed.
      op_device: the placement that came nearest.
      cost: its cost.
      tried: how many placements were tried.
    """
    certain = impossible(problem)
    if certain is not None:
        return certain
    over = np.flatnonzero(cost.peak_bytes > cost.limit_bytes)
    simulator = Simulator(problem)
    shortages = [
        Shortage(
            device=problem.topology.devices[d].name,
            need_bytes=int(cost.peak_bytes[d]),
            limit_bytes=int(cost.limit_bytes[d]),
            largest=_largest(problem, simulator, op_device, int(d)),
        )
        for d in over
    ]
    reason = (
        f"None of {tried} tried placements of {problem.graph.name!r} on {problem.topology.name!r} fits. "
        f"The nearest is {format_bytes(cost.excess_bytes)} over in total:"
    )
    return InfeasibleError(reason, shortages, _ways_out(problem, shortages, cost))


def _largest(problem: Problem, simulator: Simulator, op_device: IntArray, device: int) -> tuple[tuple[str, int], ...]:
    """The largest variables and op results that the device holds when it holds most."""
    held = simulator.holdings(op_device, device)
    return tuple((_name(problem.graph, holding), holding.size_bytes) for holding in held[:_LARGEST])


def _name(graph: OpGraph, holding: Holding) -> str:
    if holding.kind == HoldingKind.COPY:
        return "variables written while they are read (copies)"
    if holding.kind == HoldingKind.VARIABLE:
        return next(v.name for v in graph.variables if v.op == holding.op)
    return f"{graph.op_names[holding.op]} ({holding.kind})"


def _ways_out(problem: Problem, shortages: Sequence[Shortage], cost: StepCost) -> list[str]:
    ways = []
    total = int(cost.limit_bytes.sum())
    own = {d.name: d.memory_bytes for d in problem.topology.devices}
    beside = {d.name: d.workspace_bytes for d in problem.topology.devices}  # is taken off any limit
    needed = {s.device: s.need_bytes + beside[s.device] for s in shortages}
    lowered = [s for s in shortages if s.limit_bytes + beside[s.device] < own[s.device] >= needed[s.device]]
    if lowered:
        needs = ", ".join(
            f"{s.device} by {format_bytes(s.over_bytes)}, to {format_bytes(needed[s.device])} "
            f"of its {format_bytes(own[s.device])}"
            for s in lowered
        )
        others = [s.device for s in shortages if s not in lowered]
        rest = f"; {', '.join(others)} would still be over" if others else ""
        headroom = " or lower the headroom" if problem.constraints.headroom else ""
        ways.append(f"Raise max_memory{headroom}: {needs}{rest}.")
    weights = int(problem.graph.persistent_bytes.sum())
    batch = "Make the batch smaller: activations shrink with it, weights do not."
    ways.insert(0 if len(lowered) < len(shortages) else len(ways), batch)
    if problem.constraints.pin or problem.constraints.forbid or problem.constraints.colocate:
        ways.append("Drop pin, forbid or colocate rules that keep ops on the devices above.")
    ways.append(
        f"Use a topology with more memory: the devices have {format_bytes(total)} in total; variables and optimizer "
        f"slots alone take {format_bytes(weights)}."
    )
    if not any(d.type == "CPU" for d in problem.topology.devices):
        ways.append("Add the host's CPU to the topology, so that variables can stay in its memory.")
    if (problem.allowed.sum(axis=1) > 1).any():
        ways.append(
            "Give the search a larger budget, or another placer: those tried may have missed a placement that fits."
        )
    return ways
