"""What is missing when nothing fits: devices, bytes, the largest tensors there, and ways out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.core.timeline import StepCost
from tfplace.errors import InfeasibleError, Shortage
from tfplace.units import format_bytes

_LARGEST = 5


def infeasible(problem: Problem, op_device: IntArray, cost: StepCost, tried: int) -> InfeasibleError:
    """The error for a problem whose best placement, [V] devices, still exceeds some memory.

    Args:
      problem: what was to be placed.
      op_device: the placement that came nearest.
      cost: its cost.
      tried: how many placements were tried.
    """
    over = np.flatnonzero(cost.peak_bytes > cost.limit_bytes)
    shortages = [
        Shortage(
            device=problem.topology.devices[d].name,
            need_bytes=int(cost.peak_bytes[d]),
            limit_bytes=int(cost.limit_bytes[d]),
            largest=_largest(problem, op_device, int(d)),
        )
        for d in over
    ]
    reason = (
        f"No placement of {problem.graph.name!r} on {problem.topology.name!r} that fits was found among {tried} tried. "
        f"The nearest is {format_bytes(cost.excess_bytes)} over in all:"
    )
    return InfeasibleError(reason, shortages, _ways_out(problem, shortages, cost))


def _largest(problem: Problem, op_device: IntArray, device: int) -> tuple[tuple[str, int], ...]:
    """The largest variables and op results that the device holds."""
    graph = problem.graph
    here = op_device == device
    held = [(v.name, v.size_bytes) for v in graph.variables if here[v.op]]
    results = np.flatnonzero(here[graph.tensor_op])
    biggest = results[np.argsort(-graph.tensor_bytes[results], kind="stable")[:_LARGEST]]
    held += [(f"{graph.op_names[graph.tensor_op[t]]} (result)", int(graph.tensor_bytes[t])) for t in biggest]
    return tuple(sorted(held, key=lambda item: -item[1])[:_LARGEST])


def _ways_out(problem: Problem, shortages: Sequence[Shortage], cost: StepCost) -> list[str]:
    ways = []
    total = int(cost.limit_bytes.sum())
    lowered = [s for s in shortages if s.device in problem.constraints.max_memory or problem.constraints.headroom]
    if lowered:
        needs = ", ".join(f"{s.device} to {format_bytes(s.need_bytes)}" for s in lowered)
        ways.append(f"Raise max_memory or lower the headroom: {needs}.")
    ways.append("Make the batch smaller: what a step computes shrinks with it, the weights do not.")
    if problem.constraints.pin or problem.constraints.forbid or problem.constraints.colocate:
        ways.append("Drop pin, forbid or colocate rules that keep ops on the devices above.")
    weights = int(problem.graph.persistent_bytes.sum())
    ways.append(
        f"Use a topology with more memory: the devices have {format_bytes(total)} in all, of which variables and "
        f"optimizer slots alone take {format_bytes(weights)}."
    )
    if not any(d.type == "CPU" for d in problem.topology.devices):
        ways.append("Add the host's CPU to the topology, so that variables can stay in its memory.")
    ways.append("Give the search a larger budget, or another placer: the ones tried may have missed a placement.")
    return ways
