"""Sets of units that belong together without being near: scopes of a model's names, producers with their readers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import IntArray, LongArray, numbered
from tfplace.core.problem import Problem
from tfplace.group.co_placement import single_consumers
from tfplace.group.layers import earliest_start, join_neighbours, scope_parts, unit_edges, vote
from tfplace.group.owners import weights_of_ops
from tfplace.group.unit_graph import unit_graph
from tfplace.group.vicinity import members

_ALMOST_ALL = 0.7
"""Sets that are this many times as many as units tell nothing that single units do not."""


class UnitSets:
    """Scopes of every depth that tells more of them apart than the one before; and producers with their only consumers.

    Unrolled recurrent networks are what this is for. No cluster of units that are near one another is a layer over all
    its time steps, or a time step over all layers: scopes are. A scope's backward ops belong to it; what has none, such
    as sums of gradients, to that of the neighbor it shares the heaviest edge with.

    What only one unit reads, and only for what that makes, goes well with it: the gradients of a weight in all steps
    with their sum, a cell's gates with its output. These sets, of a few units or of hundreds, cross scopes; that they
    are joined to a fixed point is the co-placement of `tfplace.group.co_placement`.

    Of a step in slices there are besides: the copies of each op, each variable with what goes with it, each slice, and
    each slice's part of each scope.

    Levels that tell nothing are left out, so that there may be none.

    Args:
      problem: what is placed.

    Attributes:
      labels: [U] set of each unit per level: scopes, the widest first, then consumers, then those of slices.
      sets: the units of each set of each level, in the order in which an unlimited machine would start them.
      place: [U] of each unit in that order.
    """

    def __init__(self, problem: Problem) -> None:
        scopes = _scopes(problem)
        self.labels = scopes + _consumers(problem) + _of_slices(problem, scopes)
        self.place = _places(problem)
        self.sets = [[units[np.argsort(self.place[units])] for units in members(label)] for label in self.labels]


def _scopes(problem: Problem) -> list[IntArray]:
    parts = scope_parts(problem)
    src, dst, _ = unit_edges(problem)
    labels: list[IntArray] = []
    count = 1
    for depth in range(1, max(map(len, parts), default=0) + 1):
        scopes = ["/".join(part[:depth]) for part in parts]
        label = vote(problem, scopes, sorted({*scopes} - {""}))
        found, of = np.unique(join_neighbours(label, src, dst), return_inverse=True)
        if count < len(found) <= _ALMOST_ALL * problem.num_units:
            count = len(found)
            labels.append(of.astype(np.int32))
    return labels


def _consumers(problem: Problem) -> list[IntArray]:
    label = single_consumers(problem, unit_graph(problem))
    return [label] if 1 < int(label.max(initial=-1)) + 1 <= _ALMOST_ALL * problem.num_units else []


def _of_slices(problem: Problem, scopes: list[IntArray]) -> list[IntArray]:
    slices = problem.graph.slices
    if slices is None:
        return []
    first = np.array([ops[0] for ops in problem.grouping.members])
    slice_of = np.array([slices.slice_of[ops].max() for ops in problem.grouping.members])
    copies = numbered([slices.original[v] for v in first])
    once = slice_of < 0
    weights = weights_of_ops(problem.graph)
    weight = np.array([weights[ops].max() for ops in problem.grouping.members])
    owned = np.where(once & (weight >= 0), weight, -1 - np.arange(problem.num_units))
    labels = [owned, np.where(once, -1, slice_of)]
    labels += [np.where(once, scope, (slice_of + 1) * (int(scope.max()) + 1) + scope) for scope in scopes]
    most = _ALMOST_ALL * problem.num_units
    found = [copies, *map(_renumbered, labels)]
    return [label for label in found if 1 < int(label.max()) + 1 <= most]


def _renumbered(label: NDArray[Any]) -> IntArray:
    return np.unique(label, return_inverse=True)[1].reshape(-1).astype(np.int32)


def _places(problem: Problem) -> LongArray:
    start = earliest_start(problem, np.arange(problem.num_devices, dtype=np.int32))
    first = np.array([start[ops].min() for ops in problem.grouping.members])
    place = np.empty(problem.num_units, np.int64)
    place[np.argsort(first, kind="stable")] = np.arange(problem.num_units)
    return place
