"""What moves between ops and between units: the view of a problem that placers and groupers share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.problem import Problem


class Flow(NamedTuple):
    """Edges that order two ops of one step, [F]: no loop back edges, and nothing of replicable constants.

    Attributes:
      src: [F] producing op.
      dst: [F] consuming op, above `src`.
      tensor: [F] tensor carried, or -1 for a control edge.
      trips: [F] times it is carried in a step.
      size_bytes: [F] bytes carried each time; 0 for a control edge.
    """

    src: IntArray
    dst: IntArray
    tensor: IntArray
    trips: FloatArray
    size_bytes: FloatArray


def flow(problem: Problem) -> Flow:
    """The edges of `problem.graph` that a placement may have to pay for."""
    graph = problem.graph
    still = graph.replicable | (problem.grouping.unit_of < 0)
    keep = ~graph.edge_back & ~still[graph.edge_src] & ~still[graph.edge_dst]
    src, tensor = graph.edge_src[keep], graph.edge_tensor[keep]
    size = np.zeros(len(tensor))
    size[tensor >= 0] = graph.tensor_bytes[tensor[tensor >= 0]]
    return Flow(src, graph.edge_dst[keep], tensor, graph.trips[src], size)


def mean_transfer_s(problem: Problem, edges: Flow) -> FloatArray:
    """[F] seconds each edge takes between two different devices, averaged over all ordered pairs of devices."""
    apart = ~np.eye(problem.num_devices, dtype=bool)
    if not apart.any():
        return np.zeros(len(edges.src))
    per_byte = float((1.0 / problem.topology.bandwidth[apart]).mean())
    latency = float(problem.topology.latency_s[apart].mean())
    return edges.trips * (latency + edges.size_bytes * per_byte)


def spread_labels(label: IntArray, src: IntArray, dst: IntArray, edges: Flow, kept: BoolArray | None = None) -> None:
    """Gives what has no label that of a neighbor, along the heaviest edges first, as often as it takes.

    Of edges alike in bytes, as those of scalars are, later ones count first: so a chain of them goes with its reader.

    Args:
      label: [N] changed in place; -1 for none.
      src: [F] what each edge comes from, an index of `label`.
      dst: [F] where it goes to, alike.
      edges: between ops.
      kept: [F] edges that are looked at; by default all.
    """
    open_ends = (label[src] < 0) | (label[dst] < 0)
    order = np.lexsort((-edges.dst, -edges.size_bytes * edges.trips))
    order = order[(open_ends if kept is None else open_ends & kept)[order]]
    pairs = list(zip(src[order].tolist(), dst[order].tolist(), strict=True))
    changed = True
    while changed:
        changed, left = False, []
        for a, b in pairs:
            if (label[a] < 0) == (label[b] < 0):
                left += [(a, b)] if label[a] < 0 else []
                continue
            label[a] = label[b] = max(label[a], label[b])
            changed = True
        pairs = left
