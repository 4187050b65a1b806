"""Phases of a placement as control edges: on each device one phase after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.control_flow import ARGUMENTS, ControlFlow, control_flow, idle_constants
from tfplace.core.graph import OpGraph
from tfplace.errors import ApplyError
from tfplace.execution.waits import NO_WAITS, Waits


@dataclass(frozen=True, eq=False)
class _Border:
    """Where a device goes from a phase to the next.

    Attributes:
      name: of the joint that stands there.
      device: whose phases.
      last: ops of the phase before for which the next one waits.
      first: ops of the next phase that wait for them.
    """

    name: str
    device: int
    last: IntArray
    first: IntArray


def phase_waits(graph: OpGraph, op_device: IntArray, phases: IntArray | None, devices: Sequence[str]) -> Waits:
    """What ops wait for so that phases run one after the other on each device.

    A joint stands at each border of two phases. It waits for the joint before it and for the ops of the phase before
    that no other op of that phase reads; those of the next phase that read no other op of theirs wait for it.

    A loop is as one op: nothing outside of it can wait for a single turn. Its Enter ops wait for the phases before the
    first that it has on their device, and the phases after the last wait for its Exit ops. For the ops of a branch
    nothing waits but through its Merge, as a branch may not be taken. Arguments, variables and copied constants do not
    wait at all.

    Args:
      graph: [V] ops.
      op_device: [V] device of each op.
      phases: [V] phase of each op on its device, or -1; None for no waits. See `Placement.phases`.
      devices: [D] TensorFlow devices.

    Raises:
      ApplyError: an op would wait for itself, through phases and edges of the graph.
    """
    if phases is None:
        return NO_WAITS
    flow = control_flow(graph)
    borders = _borders(graph, op_device, phases, flow)
    _check_acyclic(graph, phases, borders, devices, idle_constants(graph, flow))
    after: dict[str, tuple[str, ...]] = {}
    previous: dict[int, str] = {}
    for border in borders:
        own = tuple(graph.op_names[v] for v in border.last.tolist())
        after[border.name] = (previous[border.device], *own) if border.device in previous else own
        after |= {graph.op_names[v]: (border.name,) for v in border.first.tolist()}
        previous[border.device] = border.name
    return Waits(after, {border.name: devices[border.device] for border in borders})


def _borders(graph: OpGraph, op_device: IntArray, phases: IntArray, flow: ControlFlow) -> list[_Border]:
    """The borders of each device, in the order of its phases."""
    counts = (phases >= 0) & ~graph.replicable & ~np.array([op in ARGUMENTS for op in graph.op_types], bool)
    waits, awaited = counts & ~flow.in_loop, counts & flow.always_ends
    begins, ends = _loops_as_one(graph, op_device, phases, flow.loop)
    src, dst = graph.edge_src[~graph.edge_back], graph.edge_dst[~graph.edge_back]
    here = op_device[src] == op_device[dst]
    first, last = waits.copy(), awaited.copy()
    first[dst[here & (begins[src] == begins[dst]) & waits[src]]] = False
    last[src[here & (ends[src] == ends[dst]) & awaited[dst]]] = False
    out = []
    for d in np.unique(op_device).tolist():
        on = op_device == d
        numbers = np.union1d(begins[on & waits], ends[on & awaited]).tolist()
        for before, phase in pairwise(numbers):
            name = f"tfplace_phases/device{d}/phase{phase}"
            out.append(_Border(name, d, _ops(on & last & (ends == before)), _ops(on & first & (begins == phase))))
    return out


def _ops(chosen: BoolArray) -> IntArray:
    return np.flatnonzero(chosen).astype(np.int32)


def _loops_as_one(graph: OpGraph, op_device: IntArray, phases: IntArray, loop: IntArray) -> tuple[IntArray, IntArray]:
    """[V] the phases in which ops begin and [V] those in which they end: a loop's first and last on a device."""
    begins, ends = phases.copy(), phases.copy()
    own = (loop >= 0) & (phases >= 0)
    key = loop.astype(np.int64) * (int(op_device.max(initial=0)) + 1) + op_device
    for one in np.unique(key[own]).tolist():
        ops = own & (key == one)
        begins[ops], ends[ops] = phases[ops].min(), phases[ops].max()
    return begins, ends


def _check_acyclic(
    graph: OpGraph, phases: IntArray, borders: Sequence[_Border], devices: Sequence[str], idle: BoolArray
) -> None:
    """Raises if a border waits for itself, be it by a later turn of a loop; `idle` [V] ops wait for nothing."""
    read = ~idle[graph.edge_dst]
    joint = graph.num_ops + np.arange(len(borders))
    chained = [i for i, (a, b) in enumerate(pairwise(borders)) if a.device == b.device]
    src = np.concatenate([graph.edge_src[read], joint[chained], *(b.last for b in borders)])
    src = np.concatenate([src, *(np.full(len(b.first), joint[i]) for i, b in enumerate(borders))])
    dst = np.concatenate([graph.edge_dst[read], joint[chained] + 1])
    dst = np.concatenate([dst, *(np.full(len(b.last), joint[i]) for i, b in enumerate(borders))])
    dst = np.concatenate([dst, *(b.first for b in borders)])
    size = graph.num_ops + len(borders)
    edges = coo_array((np.ones(len(src), np.int8), (src, dst)), shape=(size, size))
    of = connected_components(edges.tocsr(), connection="strong")[1]
    for i, border in enumerate(borders):
        round_trip = of == of[joint[i]]
        waiting = border.first[round_trip[border.first]]
        if len(waiting):
            before = np.concatenate([b.last for b in borders[: i + 1] if b.device == border.device])
            v, u = int(waiting[0]), int(before[round_trip[before]][-1])
            raise ApplyError(
                f"phases in which {graph.op_names[v]!r} (phase {phases[v]} on {devices[border.device]}) waits for "
                f"{graph.op_names[u]!r} (phase {phases[u]}), which needs it",
                "phases in which every op comes after the ops that it reads, also across devices",
                'Remove the phases: dataclasses.replace(placement, phases=None, order="free").',
            )
