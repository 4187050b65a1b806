"""What moves between ops and between units: the view of a problem that placers and groupers share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
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
