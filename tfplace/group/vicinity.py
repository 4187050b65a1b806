"""What lies near what among a problem's units: clusters of every size, edges, and regions that share a device."""

# ruff: noqa: PLR0917
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import itertools

import numba as nb
import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.coarsen import hierarchy
from tfplace.group.flow import flow


class Vicinity:
    """The parts of a problem that a search moves together.

    Args:
      problem: what is placed.

    Attributes:
      labels: [U] cluster of each unit per level, from single units to the coarsest of `tfplace.group.coarsen`.
      clusters: the units of each cluster of each level.
      src: [F] unit that produces, for each edge between two units.
      dst: [F] unit that reads.
    """

    def __init__(self, problem: Problem) -> None:
        self.labels = [np.arange(problem.num_units, dtype=np.int32), *hierarchy(problem)]
        self.clusters = [members(label) for label in self.labels]
        edges = flow(problem)
        src, dst = problem.grouping.unit_of[edges.src], problem.grouping.unit_of[edges.dst]
        apart = src != dst
        self.src, self.dst = src[apart], dst[apart]
        ends, others = np.concatenate([self.src, self.dst]), np.concatenate([self.dst, self.src])
        order = np.argsort(ends, kind="stable")
        self._near = others[order].astype(np.int32)
        self._first: LongArray = np.searchsorted(ends[order], np.arange(problem.num_units + 1)).astype(np.int64)

    def cluster(self, level: int, unit: int) -> IntArray:
        """The cluster that a unit is in at a level."""
        return self.clusters[level][int(self.labels[level][unit])]

    def size(self, level: int) -> float:
        """Mean number of units in the clusters of a level."""
        return len(self.labels[0]) / len(self.clusters[level])

    def neighbours(self, unit: int) -> IntArray:
        """Units it shares an edge with, once per edge."""
        return self._near[self._first[unit] : self._first[unit + 1]]

    def region(self, devices: IntArray, unit: int, size: int) -> IntArray:
        """Up to `size` units around one, nearest first, all on its device and connected by units there.

        Args:
          devices: [U].
          unit: where it begins.
          size: at least 1.
        """
        out = np.empty(min(size, len(devices)), np.int32)
        count = _region(self._first, self._near, devices, unit, np.zeros(len(devices), np.bool_), out)
        return out[:count]


def members(label: IntArray) -> list[IntArray]:
    """The units of each cluster, given the cluster of each unit, numbered from 0."""
    order = np.argsort(label, kind="stable").astype(np.int32)
    bounds = np.searchsorted(label[order], np.arange(int(label.max()) + 2))
    return [order[a:b] for a, b in itertools.pairwise(bounds.tolist())]


@nb.njit(cache=True, error_model="numpy", _nrt=False, nogil=True)
def _region(first: LongArray, near: IntArray, devices: IntArray, unit: int, seen: BoolArray, out: IntArray) -> int:
    """Breadth first from `unit` until `out` is full; writes the units to it and returns how many."""
    out[0] = unit
    seen[unit] = True
    count, i = 1, 0
    while i < count < len(out):
        for e in range(first[out[i]], first[out[i] + 1]):
            v = near[e]
            if count < len(out) and not seen[v] and devices[v] == devices[unit]:
                seen[v] = True
                out[count] = v
                count += 1
        i += 1
    return count
