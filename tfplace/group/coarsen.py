"""Clusters of units at every size, from pairs to a handful, so that a search can move much or little at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.merge import renumber
from tfplace.group.unit_graph import UnitGraph, sum_parallel, unit_graph

_BALANCE = 6.0
"""A cluster may take this many times the mean seconds of the clusters of its level."""

_SLOW = 0.9
_STUCK = 0.97


def hierarchy(problem: Problem, smallest: int = 8, ratio: float = 1.5) -> list[IntArray]:
    """Clusterings of the units, each made of the one before by joining pairs; see `coarsen`.

    Only units with the same allowed devices are joined, so a cluster can go wherever one of its units can. How much its
    variables take does not matter: clusters are moved together, not decided together.

    Args:
      problem: what is placed.
      smallest: stop at about this many clusters.
      ratio: levels with less than this many times fewer clusters than the one before are left out.

    Returns:
      [U] cluster of each unit, numbered from 0, per level, finest first; the level of single units is left out.
    """
    graph = unit_graph(problem)
    graph = graph._replace(room_bytes=np.full(len(graph.room_bytes), np.inf))
    levels: list[IntArray] = []
    kept = problem.num_units
    for label in coarsen(graph, smallest):
        count = int(label.max()) + 1
        if count * ratio <= kept or count <= smallest:
            levels.append(label)
            kept = count
    return levels


def nested_groups(problem: Problem, counts: Sequence[int]) -> list[IntArray]:
    """Groups of units from coarse to fine, each level's groups made of groups of the next.

    Args:
      problem: what is placed.
      counts: for each the finest level of `hierarchy` with at most so many groups is taken, or
        its coarsest if all have more. Equal ones are taken once. All but the last have at most a third as many groups
        as there are units, so that small graphs have something coarse too.

    Returns:
      [U] the group of each unit, numbered by first unit, per level.
    """
    levels = [np.arange(problem.num_units, dtype=np.int32), *hierarchy(problem)]
    sizes = [int(label.max()) + 1 for label in levels]
    most = [*(min(count, problem.num_units // 3) for count in counts[:-1]), counts[-1]]
    wanted = {next((i for i, size in enumerate(sizes) if size <= count), len(sizes) - 1) for count in most}
    return [renumber(levels[i]) for i in sorted(wanted, reverse=True)]


def coarsen(graph: UnitGraph, smallest: int) -> Iterator[IntArray]:
    """Joins pairs of clusters over heavy edges, level by level, until `smallest` are left or hardly any can be joined.

    Heavy-edge matching as in G. Karypis, V. Kumar: A fast and high quality multilevel scheme for partitioning
    irregular graphs, SIAM Journal on Scientific Computing 20(1), 1998, section 3.1, with two departures: edges are
    matched from the heaviest on rather than nodes in random order; and where that joins few, clusters that exchange
    most with the same third one are joined too, so that stars shrink. The weight of an edge is the mean seconds a
    transfer along it takes. A pair has one kind, at most `UnitGraph.room_bytes` of variables, and at most six times the
    mean seconds of its level.

    Args:
      graph: of the problem.
      smallest: stop at this many clusters.

    Yields:
      [U] cluster of each unit, numbered from 0, per level, finest first.
    """
    label: IntArray = np.arange(len(graph.kind), dtype=np.int32)
    level = _Level(graph.kind, graph.seconds, graph.size_bytes, graph.low, graph.high, graph.weight)
    while (count := len(level.kind)) > smallest:
        limit_s = _BALANCE * float(level.seconds.sum()) / count
        mate = _match(level, _joinable(level, graph, level.low, level.high, limit_s), count - smallest)
        left = _left(mate)
        if left > _SLOW * count and left > smallest:
            mate = _match_siblings(level, graph, mate, limit_s, left - smallest)
        if _left(mate) > _STUCK * count:
            return
        joined = np.unique(mate, return_inverse=True)[1].ravel().astype(np.int32)
        level = _contract(level, mate, joined)
        label = joined[label]
        yield label


class _Level(NamedTuple):
    """Clusters and the edges between them.

    Attributes:
      kind: [N] id of the allowed devices.
      seconds: [N].
      size_bytes: [N] of variables.
      low: [P] one end of each edge.
      high: [P] the other.
      weight: [P] seconds.
    """

    kind: IntArray
    seconds: FloatArray
    size_bytes: FloatArray
    low: IntArray
    high: IntArray
    weight: FloatArray


def _joinable(
    level: _Level, graph: UnitGraph, a: IntArray | LongArray, b: IntArray | LongArray, limit_s: float
) -> BoolArray:
    """Whether each pair of clusters may become one."""
    fits: BoolArray = level.kind[a] == level.kind[b]
    fits &= level.seconds[a] + level.seconds[b] <= limit_s
    fits &= level.size_bytes[a] + level.size_bytes[b] <= graph.room_bytes[level.kind[a]]
    return fits


def _match(level: _Level, fits: BoolArray, most: int) -> IntArray:
    """[N] the lower cluster of the pair each is in; itself if it stays alone. At most `most` pairs, heaviest first."""
    rows = np.flatnonzero(fits)
    rows = rows[np.argsort(-level.weight[rows], kind="stable")]
    mate = np.arange(len(level.kind), dtype=np.int32)
    free = [True] * len(mate)
    for a, b in zip(level.low[rows].tolist(), level.high[rows].tolist(), strict=True):
        if free[a] and free[b]:
            free[a] = free[b] = False
            mate[b] = a
            most -= 1
            if not most:
                break
    return mate


def _match_siblings(level: _Level, graph: UnitGraph, mate: IntArray, limit_s: float, most: int) -> IntArray:
    """`mate` with at most `most` more pairs: clusters still alone whose heaviest edges lead to the same cluster."""
    count = len(mate)
    alone = mate == np.arange(count)
    alone[mate[~alone]] = False
    near = _heaviest_neighbour(level)
    nodes = np.flatnonzero(alone & (near >= 0))
    nodes = nodes[np.lexsort((nodes, level.kind[nodes], near[nodes]))]
    place = np.arange(len(nodes)) - np.maximum.accumulate(
        np.where(np.diff(near[nodes], prepend=-1) != 0, np.arange(len(nodes)), 0)
    )
    first = np.flatnonzero((place[:-1] % 2 == 0) & (near[nodes][:-1] == near[nodes][1:]))
    a, b = nodes[first], nodes[first + 1]
    fits = _joinable(level, graph, a, b, limit_s)
    mate = mate.copy()
    mate[b[fits][:most]] = a[fits][:most]
    return mate


def _heaviest_neighbour(level: _Level) -> IntArray:
    """[N] the cluster each exchanges most with; -1 for none."""
    near = np.full(len(level.kind), -1, np.int32)
    order = np.argsort(level.weight, kind="stable")  # the last assignment counts
    ends = np.stack([level.low[order], level.high[order]], axis=1).ravel()
    near[ends] = np.stack([level.high[order], level.low[order]], axis=1).ravel()
    return near


def _left(mate: IntArray) -> int:
    """How many clusters there are once all pairs are joined."""
    return int((mate == np.arange(len(mate))).sum())


def _contract(level: _Level, mate: IntArray, joined: IntArray) -> _Level:
    """The level in which pairs are one cluster."""
    kept = np.unique(mate)
    low, high, weight = sum_parallel(joined[level.low], joined[level.high], level.weight, len(kept))
    seconds = np.bincount(joined, level.seconds, len(kept)).astype(np.float64)
    size_bytes = np.bincount(joined, level.size_bytes, len(kept)).astype(np.float64)
    return _Level(level.kind[kept], seconds, size_bytes, low, high, weight)
