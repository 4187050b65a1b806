"""A topological order of a graph in which branches, and layers, stay together."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.arrays import IntArray
from tfplace.schedule.pipeline.ideals import depth_first_order


def layer_order(node: IntArray, src: IntArray, dst: IntArray, layer: IntArray) -> tuple[IntArray, IntArray]:
    """Nodes, and the place of each; nodes that come both before and after one another share one.

    Args:
      node: [V] of each op, -1 for ops that are not placed.
      src: [E] ops that come before others.
      dst: [E] those others.
      layer: [V] of each op.
    """
    placed = np.flatnonzero(node >= 0)
    if not len(placed):
        return node[:0], node[:0]
    body, first = np.unique(node[placed], return_index=True)
    index = np.full(int(body[-1]) + 2, -1, np.int32)  # the last for -1
    index[body] = np.arange(len(body))
    pairs = index[node[np.stack([src, dst], axis=1)]]
    pairs = pairs[(pairs >= 0).all(axis=1)]
    group = components(len(body), pairs[:, 0], pairs[:, 1], "strong")
    _, start, label = np.unique(group, return_index=True, return_inverse=True)
    pairs = np.unique(label[pairs], axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].astype(np.int32)
    rank = np.argsort(_by_layer(_as_needed(len(start), pairs), pairs, layer[placed[first[start]]]))
    return body, rank[label].astype(np.int32)


def _by_layer(line: IntArray, before: IntArray, layer: IntArray) -> IntArray:
    """A topological order like another one in which layers stay together, also where they are unrolled in time.

    Args:
      line: [N] another topological order.
      before: [E, 2] pairs of which the first comes before the second.
      layer: [N] of each node.
    """
    count = len(line)
    rank = np.argsort(line)
    begin = np.full(int(layer.max()) + 1, count)
    np.minimum.at(begin, layer, rank)
    key = list(zip(begin[layer].tolist(), rank.tolist(), range(count), strict=True))
    readers, waiting = neighbors(count, before[:, 0], before[:, 1]), np.bincount(before[:, 1], minlength=count)
    ready = [key[v] for v in np.flatnonzero(waiting == 0).tolist()]
    heapq.heapify(ready)
    out = []
    while ready:
        v = heapq.heappop(ready)[-1]
        out.append(v)
        for u in readers[v]:
            waiting[u] -= 1
            if not waiting[u]:
                heapq.heappush(ready, key[u])
    return np.array(out, np.int32)


def _as_needed(count: int, before: IntArray) -> IntArray:
    """A topological order in which what the last result needs comes as late as it can, branch by branch.

    So inputs such as labels come where they are needed. What the last result, that of the longest path, does not need,
    such as averages of statistics, comes right after what it reads.

    Args:
      count: of nodes.
      before: [E, 2] pairs of which the first comes before the second.
    """
    needs = neighbors(count, before[:, 1], before[:, 0])
    any_order = depth_first_order(count, before).tolist()
    depth = [0] * count
    for v in any_order:
        depth[v] = max((depth[u] + 1 for u in needs[v]), default=0)
    base: dict[int, int] = {}
    pending = [max(range(count), key=depth.__getitem__)]
    while pending:
        waiting = [u for u in needs[pending[-1]] if u not in base]
        if waiting:
            pending += sorted(waiting, key=depth.__getitem__)  # the longest path comes first, then what joins it
        else:
            base.setdefault(pending.pop(), len(base))
    found = [*base]
    for v in any_order:
        if v not in base:
            base[v] = max((base[u] for u in needs[v]), default=0)
            found.append(v)
    return np.array(sorted(found, key=base.__getitem__), np.int32)


def components(count: int, src: IntArray, dst: IntArray, connection: Literal["weak", "strong"]) -> IntArray:
    """[N] the connected component of each node.

    Args:
      count: of nodes.
      src: [E] from which edges come.
      dst: [E] to which they go.
      connection: whether by edges in either direction, or by paths both ways.
    """
    links = coo_array((np.ones(len(src), np.int8), (src, dst)), shape=(count, count))
    found: IntArray = connected_components(links, directed=True, connection=connection)[1].astype(np.int32)
    return found


def neighbors(count: int, ends: IntArray, others: IntArray) -> Sequence[Sequence[int]]:
    """[N] the other ends of each node's edges.

    Args:
      count: of nodes.
      ends: [E] one end of each edge.
      others: [E] its other end.
    """
    out: list[list[int]] = [[] for _ in range(count)]
    for v, u in zip(ends.tolist(), others.tolist(), strict=True):
        out[v].append(u)
    return out
