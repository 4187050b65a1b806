"""What lies near what among a problem's units: clusters of every size, and edges."""

from __future__ import annotations

import itertools

import numpy as np

from tfplace.core.arrays import IntArray, LongArray
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
      first: [U + 1] where each unit's neighbors begin in the next.
      near: [2 F] units it shares an edge with, once per edge.
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
        self.near = others[order].astype(np.int32)
        self.first: LongArray = np.searchsorted(ends[order], np.arange(problem.num_units + 1)).astype(np.int64)


def members(label: IntArray) -> list[IntArray]:
    """The units of each cluster, given the cluster of each unit, numbered from 0."""
    order = np.argsort(label, kind="stable").astype(np.int32)
    bounds = np.searchsorted(label[order], np.arange(int(label.max()) + 2))
    return [order[a:b] for a, b in itertools.pairwise(bounds.tolist())]
