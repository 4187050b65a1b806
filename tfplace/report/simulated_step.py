"""One simulated step of a placement: when all of it happens, and which parts of it are the critical path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, LongArray
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.timeline import Timeline
from tfplace.report.explaining import innermost_layers
from tfplace.report.waiting import Path, path_of


@dataclass(frozen=True, eq=False)
class SimulatedStep:
    """A step as reports show it.

    Attributes:
      graph: of the step.
      timeline: when everything happens.
      layer_names: layers, and last what ops are called that are in none.
      op_layer: [V] index of the innermost layer of each op.
      op_bytes: [V] bytes of each op's results.
      has_path: whether the critical path is known.
      op_critical: [V] whether an op is on it; of a compiled step all ops of a cluster are.
      moved_critical: [M] whether a transfer is on it.
    """

    graph: OpGraph
    timeline: Timeline
    layer_names: tuple[str, ...]
    op_layer: IntArray
    op_bytes: LongArray
    has_path: bool
    op_critical: BoolArray
    moved_critical: BoolArray

    @property
    def end_s(self) -> float:
        """When the last op or transfer ends."""
        ends = (self.timeline.finish_s, self.timeline.moved_finish_s)
        return float(max(end.max(initial=0.0) for end in ends))


def simulated_step(placement: Placement) -> SimulatedStep | None:
    """The step of a placement; None if it does not know its problem."""
    problem = placement.problem
    if problem is None:
        return None
    graph, timeline, path = problem.graph, placement.timeline(), path_of(placement)
    names, layer = innermost_layers(graph)
    size = np.zeros(graph.num_ops, np.int64)
    np.add.at(size, graph.tensor_op, graph.tensor_bytes)
    computes, sends = _critical(graph, timeline, path)
    return SimulatedStep(graph, timeline, tuple(names), layer, size, path is not None, computes, sends)


def _critical(graph: OpGraph, timeline: Timeline, path: Path | None) -> tuple[BoolArray, BoolArray]:
    """[V] and [M] what is on the path, which names an op of the step or a cluster of ops."""
    if path is None:
        return np.zeros(graph.num_ops, np.bool_), np.zeros(len(timeline.moved), np.bool_)
    vertex: IntArray = np.arange(graph.num_ops, dtype=np.int32) if path.vertex is None else path.vertex
    first = np.full(int(vertex.max(initial=-1)) + 1, -1, np.int32)
    first[vertex[::-1]] = np.arange(graph.num_ops, dtype=np.int32)[::-1]
    computes = path.src == path.dst
    critical: BoolArray = np.isin(vertex, path.op[computes]) & ~timeline.replicated
    sent: dict[tuple[str, int, int], list[float]] = {}
    for v, a, b, seconds in zip(path.op, path.src, path.dst, path.seconds, strict=True):
        if a != b:
            sent.setdefault((graph.op_names[first[v]], int(a), int(b)), []).append(float(seconds))
    return critical, _sent(timeline, sent)


def _sent(timeline: Timeline, sent: Mapping[tuple[str, int, int], Sequence[float]]) -> BoolArray:
    """[M] the transfers that took the seconds of the path; all of a sender where only the work of sending is on it."""
    critical = np.zeros(len(timeline.moved), np.bool_)
    took = timeline.moved_finish_s - timeline.moved_start_s
    moves: dict[tuple[str, int, int], list[int]] = {key: [] for key in sent}
    for m, key in enumerate(zip(timeline.moved, timeline.moved_src.tolist(), timeline.moved_dst.tolist(), strict=True)):
        if key in moves:
            moves[key].append(m)
    for key, several in moves.items():
        same = [m for m in several if np.isclose(took[m], sent[key], rtol=1e-6, atol=0).any()]
        critical[same or several] = True
    return critical
