"""Merge: producers with their only consumers, then the smallest groups with their neighbors."""

from __future__ import annotations

import heapq

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.group.acyclic import precedence
from tfplace.group.flow import flow
from tfplace.group.limits import check_count, finish
from tfplace.group.merge import renumber
from tfplace.group.unit_graph import UnitGraph, sum_parallel, unit_graph

_BALANCE = 2.0
"""A merged group may take this many times the mean seconds of `count` groups while a smaller neighbor is left."""


def merge(problem: Problem, count: int) -> IntArray:
    """[U] groups of producers with their only consumers, merged down to `count`; numbered by first unit.

    First, a group whose outputs only one other group reads joins that group, as often as it applies: A. Mirhoseini et
    al.: Device Placement Optimization with Reinforcement Learning, ICML 2017, section 3.3, rule (b); the co-placement
    of B. Jeon et al.: Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020. This makes no circle
    of groups where units are in none, since no other way leads from the producer to the consumer.

    If more than `count` groups are left, the one of the least seconds joins the neighbor it exchanges most with, again
    and again: the merging that R. Addanki et al.: Placeto, NeurIPS 2019, section 4.1 tells of without its details.
    Departures: groups above twice the mean of `count` groups take in no others while there is another neighbor, and
    what has no neighbor of its kind joins groups next to it in topological order.

    Args:
      problem: what is placed.
      count: at most so many groups, but for what `tfplace.group.limits.finish` says. Fewer are left if single consumers
        alone lead there.

    Raises:
      InputError: `count` is below 1.
    """
    check_count(count)
    graph = unit_graph(problem)
    label = single_consumers(problem, graph)
    return finish(problem, _merge_smallest(graph, label, count), count, graph)


def single_consumers(problem: Problem, graph: UnitGraph) -> IntArray:
    """[U] groups after merging each producer with its only consumer to a fixed point; numbered by first unit.

    Units of different kinds, and more variables than `UnitGraph.room_bytes`, stay apart.
    """
    unit_of = problem.grouping.unit_of
    edges = flow(problem)
    rows = np.argsort(unit_of[edges.src], kind="stable")
    first = np.searchsorted(unit_of[edges.src][rows], np.arange(problem.num_units + 1)).tolist()
    reader = unit_of[edges.dst][rows].tolist()
    kind, size = graph.kind.tolist(), graph.size_bytes.tolist()
    room = graph.room_bytes.tolist()
    into = list(range(problem.num_units))
    # Later units first, so that the groups of a unit's readers are final when it is looked at, but for readers that
    # come before it, as a variable does that it updates.
    for unit in precedence(problem).order[::-1].tolist():
        readers = {_root(into, reader[i]) for i in range(first[unit], first[unit + 1])} - {unit}
        if len(readers) == 1:
            (group,) = readers
            if kind[group] == kind[unit] and size[group] + size[unit] <= room[kind[unit]]:
                size[group] += size[unit]
                into[unit] = group
    return renumber(np.array([_root(into, unit) for unit in range(problem.num_units)], np.int32))


def _root(into: list[int], group: int) -> int:
    """What `group` has become a part of."""
    while into[group] != group:
        into[group] = into[into[group]]
        group = into[group]
    return group


def _merge_smallest(graph: UnitGraph, label: IntArray, count: int) -> IntArray:
    """[U] groups after merging the smallest with its best neighbor until `count` are left or none can be."""
    groups = int(label.max(initial=-1)) + 1
    if groups <= count:
        return label
    pool = _Pool(graph, label, _BALANCE * float(graph.seconds.sum()) / count)
    heap = [(pool.seconds[g], g) for g in range(groups)]
    heapq.heapify(heap)
    while heap and groups > count:
        seconds, g = heapq.heappop(heap)
        if pool.into[g] != g or seconds != pool.seconds[g]:
            continue  # it has been merged or has grown since
        into = pool.best_neighbour(g)
        if into < 0:
            continue
        heapq.heappush(heap, (pool.merge(g, into), into))
        groups -= 1
    roots = np.array([_root(pool.into, g) for g in range(len(pool.into))], np.int32)
    return renumber(roots[label])


class _Pool:
    """Groups and what flows between them, while they are merged.

    Args:
      graph: of the problem.
      label: [U] groups.
      limit_s: groups above it are a worse choice.
    """

    def __init__(self, graph: UnitGraph, label: IntArray, limit_s: float) -> None:
        count = int(label.max()) + 1
        kind = np.empty(count, np.int32)
        kind[label] = graph.kind
        self.kind = kind.tolist()
        self.seconds: list[float] = np.bincount(label, graph.seconds, count).tolist()
        self.size = np.bincount(label, graph.size_bytes, count).tolist()
        self.room = graph.room_bytes[kind].tolist()
        self.limit_s = limit_s
        self.into = list(range(count))
        self.near: list[dict[int, float]] = [{} for _ in range(count)]
        low, high, weight = sum_parallel(label[graph.low], label[graph.high], graph.weight, count)
        for a, b, w in zip(low.tolist(), high.tolist(), weight.tolist(), strict=True):
            self.near[a][b] = self.near[b][a] = w

    def best_neighbour(self, g: int) -> int:
        """The neighbor that `g` may join and exchanges most with, those within the limit first; -1 if there is none.

        Of equals the one of fewest seconds, then the first.
        """
        best, key = -1, (True, 0.0, 0.0, 0)
        for other, weight in self.near[g].items():
            if self.kind[other] == self.kind[g] and self.size[other] + self.size[g] <= self.room[g]:
                this = (self.seconds[other] + self.seconds[g] > self.limit_s, -weight, self.seconds[other], other)
                if best < 0 or this < key:
                    best, key = other, this
        return best

    def merge(self, g: int, into: int) -> float:
        """Makes `g` a part of `into`; gives back the seconds that has now."""
        self.into[g] = into
        self.seconds[into] += self.seconds[g]
        self.size[into] += self.size[g]
        mine, theirs = self.near[g], self.near[into]
        del theirs[g], mine[into]
        for other, weight in mine.items():
            del self.near[other][g]
            theirs[other] = theirs.get(other, 0.0) + weight
            self.near[other][into] = theirs[other]
        self.near[g] = {}
        return self.seconds[into]
