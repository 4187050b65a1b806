"""One simulated step of a placement: when all of it happens, and which parts of it are the critical path."""

from __future__ import annotations

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
      moved_critical: [M] whether what an op sends to that device is on it.
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
    made = ((graph.op_names[first[v]], a, b) for v, a, b in zip(path.op, path.src, path.dst, strict=True) if a != b)
    sent = {(op, int(a), int(b)) for op, a, b in made}
    moves = zip(timeline.moved, timeline.moved_src.tolist(), timeline.moved_dst.tolist(), strict=True)
    return critical, np.array([move in sent for move in moves], np.bool_)
