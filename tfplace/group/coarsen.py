"""Clusters of units at every size, from pairs to a handful, so that a search can move much or little at once."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.group.flow import flow, mean_transfer_s

_BALANCE = 6.0
"""A cluster may take this many times the mean seconds of the clusters of its level."""

_STUCK = 0.97


def hierarchy(problem: Problem, smallest: int = 8, ratio: float = 1.5) -> list[IntArray]:
    """Clusterings of the units, each made of the one before by joining pairs over heavy edges.

    Heavy-edge matching as in G. Karypis, V. Kumar: A fast and high quality multilevel scheme for partitioning
    irregular graphs, SIAM Journal on Scientific Computing 20(1), 1998, section 3.1, with one departure: edges are
    matched from the heaviest on rather than nodes in random order. The weight of an edge is the mean seconds a transfer
    along it takes. Only units with the same allowed devices are joined, so a cluster can go wherever one of its units
    can.

    Args:
      problem: what is placed.
      smallest: stop at about this many clusters.
      ratio: levels with less than this many times fewer clusters than the one before are left out.

    Returns:
      [U] cluster of each unit, numbered from 0, per level, finest first; the level of single units is left out.
    """
    label = np.arange(problem.num_units, dtype=np.int32)
    kind: IntArray = np.unique(problem.allowed, axis=0, return_inverse=True)[1].ravel().astype(np.int32)
    seconds = _mean_seconds(problem)
    src, dst, weight = _unit_edges(problem)
    levels: list[IntArray] = []
    count = kept = problem.num_units
    while count > smallest:
        src, dst, weight = _sum_parallel(src, dst, weight, count)
        limit = _BALANCE * float(seconds.sum()) / count
        fits = (kind[src] == kind[dst]) & (seconds[src] + seconds[dst] <= limit)
        mate = _match(src[fits], dst[fits], weight[fits], count)
        joined = np.unique(mate, return_inverse=True)[1].astype(np.int32)
        new_count = int(joined.max()) + 1
        if new_count > _STUCK * count:
            break
        kind = kind[np.unique(mate)]
        seconds = np.bincount(joined, seconds, new_count).astype(np.float64)
        src, dst, label, count = joined[src], joined[dst], joined[label], new_count
        if count * ratio <= kept or count <= smallest:
            levels.append(label)
            kept = count
    return levels


def _mean_seconds(problem: Problem) -> FloatArray:
    """[U] seconds of each unit, averaged over its allowed devices."""
    inside = problem.grouping.unit_of >= 0
    seconds = np.zeros((problem.num_units, problem.num_devices))
    np.add.at(seconds, problem.grouping.unit_of[inside], problem.costs.compute_s[inside])
    mean: FloatArray = (seconds * problem.allowed).sum(axis=1) / problem.allowed.sum(axis=1)
    return mean


def _unit_edges(problem: Problem) -> tuple[IntArray, IntArray, FloatArray]:
    edges = flow(problem)
    return problem.grouping.unit_of[edges.src], problem.grouping.unit_of[edges.dst], mean_transfer_s(problem, edges)


def _sum_parallel(
    src: IntArray, dst: IntArray, weight: FloatArray, count: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """One undirected edge per pair of different nodes, with the summed weight."""
    apart: BoolArray = src != dst
    low, high = np.minimum(src, dst)[apart].astype(np.int64), np.maximum(src, dst)[apart]
    pairs, index = np.unique(low * count + high, return_inverse=True)
    total: FloatArray = np.bincount(index, weight[apart], len(pairs)).astype(np.float64)
    return (pairs // count).astype(np.int32), (pairs % count).astype(np.int32), total


def _match(src: IntArray, dst: IntArray, weight: FloatArray, count: int) -> IntArray:
    """[N] the lower node of the pair each node is in; itself if it stays alone."""
    order = np.argsort(-weight, kind="stable")
    mate = np.arange(count, dtype=np.int32)
    free = np.ones(count, np.bool_)
    for a, b in zip(src[order].tolist(), dst[order].tolist(), strict=True):
        if free[a] and free[b]:
            free[a] = free[b] = False
            mate[b] = a
    return mate
