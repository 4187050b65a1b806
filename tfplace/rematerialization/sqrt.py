"""Sqrt: the forward pass in about sqrt(n) segments of equal bytes, of which what later ones read is kept.

T. Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174, section 4.1. Departures: n counts the
ops whose results are kept, segments are equal in bytes and not in layers, and each ends where the fewest bytes are read
across, since networks are no chains. The last segment is not computed again, as the backward pass begins with it.
"""

from __future__ import annotations

import math

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, LongArray
from tfplace.core.graph import OpGraph
from tfplace.core.passes import late_ops
from tfplace.rematerialization.stash import Stash

_NEAR = 0.5
"""A segment ends within this part of its bytes from where it would be as large as the others."""


def sqrt_segments(graph: OpGraph, count: int | None = None) -> list[list[int]]:
    """Ops that are computed again, by segment.

    Args:
      graph: a training step; of one in slices, each slice has segments of its own.
      count: segments; by default the square root of the ops whose results are kept for the backward pass.
    """
    stash, level = Stash(graph), _levels(graph)
    if graph.slices is None:
        return _segments(stash, level, stash.possible, count)
    slice_of, slices = graph.slices.slice_of, range(len(graph.slices.sizes))
    return [segment for k in slices for segment in _segments(stash, level, stash.possible & (slice_of == k), count)]


def _segments(stash: Stash, level: IntArray, ops: BoolArray, count: int | None) -> list[list[int]]:
    """Segments of some of the ops that can be computed again."""
    kept = np.where(stash.droppable & ops, stash.kept_bytes, 0)
    if not kept.any():
        return []
    count = count or max(2, round(math.sqrt(int((kept > 0).sum()))))
    ends = _ends(np.cumsum(np.bincount(level, kept)), _crossing(stash, level, ops), count)
    segment = np.searchsorted(ends, level)
    out: list[list[int]] = [[] for _ in ends]
    last = segment.copy()  # of those that read the op's results
    for v, read in enumerate(stash.inputs):
        for u in {op for pair in read for op in pair}:
            last[u] = max(last[u], segment[v])
    for v in np.flatnonzero(ops).tolist():
        if segment[v] < len(ends) and last[v] == segment[v]:
            out[segment[v]].append(v)
    return out


def _levels(graph: OpGraph) -> IntArray:
    """[V] when the forward pass must run each op at the latest, in ops; 0 for all ops after it.

    As early as possible would not do: the mask of a dropout, say, needs nothing.
    """
    forward = ~late_ops(graph)
    edges = np.flatnonzero(forward[graph.edge_src] & forward[graph.edge_dst] & ~graph.edge_back)
    pairs = list(zip(graph.edge_src[edges].tolist(), graph.edge_dst[edges].tolist(), strict=True))
    early = [0] * graph.num_ops
    for u, v in sorted(pairs, key=lambda pair: pair[1]):
        early[v] = max(early[v], early[u] + 1)
    latest = [math.inf] * graph.num_ops
    for u, v in sorted(pairs, key=lambda pair: -pair[0]):
        own = latest[v] if latest[v] < math.inf else early[v]
        latest[u] = min(latest[u], own - 1)
    level = [a if b == math.inf else b for a, b in zip(early, latest, strict=True)]
    return np.where(forward, np.maximum(level, 0), 0).astype(np.int32)


def _crossing(stash: Stash, level: IntArray, ops: BoolArray) -> LongArray:
    """[levels] bytes of some ops' results up to each level that forward ops of later levels read."""
    graph = stash.graph
    forward = ~late_ops(graph)
    until = level.copy()
    for v in np.flatnonzero(forward).tolist():
        for t in graph.inputs[v]:
            until[stash.maker[t]] = max(until[stash.maker[t]], level[v])
    size = np.zeros(graph.num_ops, np.int64)
    np.add.at(size, stash.maker, np.where(stash.maker == graph.tensor_op, graph.tensor_bytes, 0))
    change = np.zeros(int(until.max()) + 2, np.int64)
    for v in np.flatnonzero(ops).tolist():
        change[level[v]] += size[v]
        change[until[v]] -= size[v]
    crossing: LongArray = np.cumsum(change)[: int(level.max()) + 1]
    return crossing


def _ends(done: LongArray, crossing: LongArray, count: int) -> IntArray:
    """Ascending, the last levels of all segments but the last one."""
    each = done[-1] / count
    out = set()
    for i in range(1, count):
        near = np.flatnonzero(np.abs(done - i * each) <= _NEAR * each)
        if len(near):
            best = near[crossing[near] == crossing[near].min()]
            out.add(int(best[np.argmin(np.abs(done[best] - i * each))]))
    return np.array(sorted(out), np.int32)
