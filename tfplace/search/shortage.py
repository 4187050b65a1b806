"""What is missing when nothing fits: devices, bytes, the largest tensors there, and ways out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.buffers import aliases
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.core.timeline import Timeline
from tfplace.errors import InfeasibleError, Shortage
from tfplace.formatting import format_bytes
from tfplace.simulation.evaluate import timeline_of
from tfplace.simulation.program import compile_problem
from tfplace.simulation.room import devices_with_room, op_bytes

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
    timeline = timeline_of(problem, op_device)
    shortages = [
        Shortage(
            device=problem.topology.devices[d].name,
            need_bytes=int(cost.peak_bytes[d]),
            limit_bytes=int(cost.limit_bytes[d]),
            largest=_largest(problem, timeline, int(d)),
        )
        for d in over
    ]
    reason = (
        f"No placement of {problem.graph.name!r} on {problem.topology.name!r} that fits was found among {tried} tried. "
        f"The nearest is {format_bytes(cost.excess_bytes)} over in all:"
    )
    return InfeasibleError(_too_large(problem) + reason, shortages, _ways_out(problem, shortages, cost))


def _too_large(problem: Problem) -> str:
    """Names the largest of the ops that no device they may be on can hold; empty if there is none."""
    nowhere = np.append(~devices_with_room(problem).any(axis=1), False)
    if not nowhere.any():
        return ""
    need = np.where(nowhere[problem.grouping.unit_of], op_bytes(compile_problem(problem)), 0)
    op, graph = int(need.argmax()), problem.graph
    return (
        f"No device where {graph.op_types[op]} {graph.op_names[op]!r} may be has room for it: what it reads and makes "
        f"takes {format_bytes(int(need[op]))} at once, beside the variables that must be with it. "
    )


def _largest(problem: Problem, timeline: Timeline, device: int) -> tuple[tuple[str, int], ...]:
    """The largest variables and op results that the device holds when it holds most."""
    graph = problem.graph
    held = [(v.name, v.size_bytes) for v in graph.variables if timeline.op_device[v.op] == device]
    for t in _live_tensors(graph, timeline, device):
        op = int(graph.tensor_op[t])
        kind = "result" if timeline.op_device[op] == device else "received"
        held.append((f"{graph.op_names[op]} ({kind})", int(graph.tensor_bytes[t])))
    return tuple(sorted(held, key=lambda item: -item[1])[:_LARGEST])


def _live_tensors(graph: OpGraph, timeline: Timeline, device: int) -> list[int]:
    """Tensors that hold memory on the device at its peak: made or sent there, and they or a view still to be read.

    A tensor sent away counts until its readers elsewhere have finished, which is a little longer than it is held.
    """
    mine = timeline.memory_device == device
    peak_s = float(timeline.memory_s[mine][timeline.memory_bytes[mine].argmax()])
    since = np.where(timeline.op_device[graph.tensor_op] == device, timeline.start_s[graph.tensor_op], np.inf)
    until = np.where(np.isfinite(since), timeline.finish_s[graph.tensor_op], -np.inf)
    data = np.flatnonzero((graph.edge_tensor >= 0) & ~graph.edge_back)
    tensor, reader = graph.edge_tensor[data], graph.edge_dst[data]
    here = timeline.op_device[reader] == device
    # what was sent here is held since its maker finished, at the earliest
    np.minimum.at(since, tensor[here], timeline.finish_s[graph.tensor_op[tensor[here]]])
    held = here | (timeline.op_device[graph.tensor_op[tensor]] == device)
    np.maximum.at(until, tensor[held], timeline.finish_s[reader[held]])
    live = np.flatnonzero((since <= peak_s) & (until > peak_s) & ~graph.replicable[graph.tensor_op])
    views = aliases(graph)
    return sorted({_owner(graph, timeline, views, t, device) for t in live.tolist()})


def _owner(graph: OpGraph, timeline: Timeline, views: IntArray, tensor: int, device: int) -> int:
    """The tensor whose memory this one is: what a view made on the device is a view of, else itself."""
    op = int(graph.tensor_op[tensor])
    if timeline.op_device[op] != device or views[tensor] < 0:
        return tensor
    source = graph.inputs[op][views[tensor]]
    # a view of a constant or of the last turn of a loop has its own memory
    own = graph.replicable[graph.tensor_op[source]] or graph.tensor_op[source] >= op
    return tensor if own else _owner(graph, timeline, views, source, device)


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
        rest = f"; {', '.join(others)} would stay over all the same" if others else ""
        headroom = " or lower the headroom" if problem.constraints.headroom else ""
        ways.append(f"Raise max_memory{headroom}: {needs}{rest}.")
    weights = int(problem.graph.persistent_bytes.sum())
    if weights <= total:
        batch = "Make the batch smaller: what a step computes shrinks with it, the weights do not."
        ways.insert(0 if len(lowered) < len(shortages) else len(ways), batch)
    if problem.constraints.pin or problem.constraints.forbid or problem.constraints.colocate:
        ways.append("Drop pin, forbid or colocate rules that keep ops on the devices above.")
    ways.append(
        f"Use a topology with more memory: the devices have {format_bytes(total)} in all; variables and optimizer "
        f"slots alone take {format_bytes(weights)}{', so no placement can fit' if weights > total else ''}."
    )
    if not any(d.type == "CPU" for d in problem.topology.devices):
        ways.append("Add the host's CPU to the topology, so that variables can stay in its memory.")
    if weights <= total and (problem.allowed.sum(axis=1) > 1).any():
        ways.append("Give the search a larger budget, or another placer: the ones tried may have missed a placement.")
    return ways
