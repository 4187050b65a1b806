"""Groups that can be run one after the other: no cycle of groups that wait for one another."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.problem import Problem
from tfplace.group.flow import flow
from tfplace.group.merge import renumber


class Precedence(NamedTuple):
    """Which units come before which, without cycles.

    Attributes:
      src: [Q] the earlier unit of each pair.
      dst: [Q] the later one.
      order: [U] the units, earlier ones first.
    """

    src: IntArray
    dst: IntArray
    order: IntArray

    @property
    def rank(self) -> IntArray:
        """[U] position of each unit in `order`."""
        rank = np.empty(len(self.order), np.int32)
        rank[self.order] = np.arange(len(self.order), dtype=np.int32)
        return rank


def precedence(problem: Problem) -> Precedence:
    """Pairs of units with an edge between them, but for edges that go back within a cycle of units.

    Ops have no cycles, units of several ops do: a variable is read before and updated after everything that depends on
    it. Of the edges between units of one cycle only those to a unit whose first op comes later are kept, so a unit
    counts as started by its first op. The order is topological and puts units that depend on nothing, such as
    variables, next to the first unit that needs them.
    """
    unit_of = problem.grouping.unit_of
    edges = flow(problem)
    src, dst = _distinct(unit_of[edges.src], unit_of[edges.dst], problem.num_units)
    cycle = _components(src, dst, problem.num_units)
    keep: BoolArray = (cycle[src] != cycle[dst]) | (src < dst)
    src, dst = src[keep], dst[keep]
    return Precedence(src, dst, _topological(src, dst, problem.num_units))


def is_acyclic(problem: Problem, label: IntArray) -> bool:
    """Whether no groups wait for one another in a circle, by `precedence`."""
    order = precedence(problem)
    count = int(label.max(initial=-1)) + 1
    src, dst = _distinct(label[order.src], label[order.dst], count)
    return len(np.unique(_components(src, dst, count))) == count


def make_acyclic(problem: Problem, label: IntArray) -> IntArray:
    """[U] the same groups, those split that wait for one another in a circle; numbered by first unit.

    Units of such a circle are put into a topological order that stays within a group as long as any of its units is
    ready, and then goes on with the group that has most units ready. What is left of a group each time is a new group.
    Groups on no circle stay whole. The time taken is about linear in the edges.

    Args:
      problem: what is placed; its `precedence` is what must have no circle.
      label: [U] group of each unit, numbered from 0.
    """
    order = precedence(problem)
    count = int(label.max(initial=-1)) + 1
    src, dst = _distinct(label[order.src], label[order.dst], count)
    circle = _components(src, dst, count)
    tangled = np.flatnonzero(np.bincount(circle, minlength=count)[circle] > 1)
    units = np.flatnonzero(np.isin(label, tangled)).astype(np.int32)
    if not len(units):
        return renumber(label)
    # edges between circles do not matter: the circles themselves are in order
    rows = np.isin(label[order.src], tangled) & (circle[label[order.src]] == circle[label[order.dst]])
    out = label.astype(np.int64)
    out[units] = count + _runs(label, units, order.src[rows], order.dst[rows])[units]
    return renumber(out.astype(np.int32))


def _runs(label: IntArray, units: IntArray, src: IntArray, dst: IntArray) -> IntArray:
    """[U] number of the run in which each of `units` comes; see `make_acyclic`."""
    waiting = np.bincount(dst, minlength=len(label)).tolist()
    first, after = _rows(src, dst, len(label))
    ready: dict[int, list[int]] = {}
    for unit in units.tolist():
        mine = ready.setdefault(int(label[unit]), [])
        if not waiting[unit]:
            mine.append(unit)
    heap = [(-len(mine), group) for group, mine in ready.items() if mine]
    heapq.heapify(heap)
    run = np.full(len(label), -1, np.int32)
    number, group_of = 0, label.tolist()
    while heap:
        size, group = heapq.heappop(heap)
        mine = ready[group]
        if not mine or -size != len(mine):  # an older count of the group
            continue
        touched: set[int] = set()
        while mine:
            unit = mine.pop()
            run[unit] = number
            for later in after[first[unit] : first[unit + 1]]:
                waiting[later] -= 1
                if not waiting[later]:
                    ready[group_of[later]].append(later)
                    touched.add(group_of[later])
        for other in sorted(touched - {group}):
            heapq.heappush(heap, (-len(ready[other]), other))
        number += 1
    return run


def _topological(src: IntArray, dst: IntArray, count: int) -> IntArray:
    """[U] units, each after all it waits for, found from the last one back."""
    key = np.arange(count, dtype=np.float64)
    needs_nothing = np.bincount(dst, minlength=count) == 0
    nearest = np.full(count, count)
    np.minimum.at(nearest, src, dst)
    key[needs_nothing] = nearest[needs_nothing] - 0.5  # just before the first unit that needs it
    waiting = np.bincount(src, minlength=count).tolist()
    first, before = _rows(dst, src, count)
    keys = key.tolist()
    heap = [(-keys[u], -u) for u in range(count) if not waiting[u]]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        unit = -heapq.heappop(heap)[1]
        order.append(unit)
        for earlier in before[first[unit] : first[unit + 1]]:
            waiting[earlier] -= 1
            if not waiting[earlier]:
                heapq.heappush(heap, (-keys[earlier], -earlier))
    return np.array(order[::-1], np.int32)


def _rows(near: IntArray, far: IntArray, count: int) -> tuple[list[int], list[int]]:
    """Offsets by `near`, and `far` in that order."""
    order = np.argsort(near, kind="stable")
    return np.searchsorted(near[order], np.arange(count + 1)).tolist(), far[order].tolist()


def _distinct(src: IntArray, dst: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Each pair of different nodes once."""
    apart = src != dst
    pairs = np.unique(src[apart].astype(np.int64) * max(count, 1) + dst[apart])
    return (pairs // max(count, 1)).astype(np.int32), (pairs % max(count, 1)).astype(np.int32)


def _components(src: IntArray, dst: IntArray, count: int) -> IntArray:
    """[N] id of the strongly connected component of each node."""
    from scipy.sparse import csr_array  # 0.2 s, which commands that only check names need not wait for
    from scipy.sparse.csgraph import connected_components

    if not count:
        return np.zeros(0, np.int32)
    matrix = csr_array((np.ones(len(src), np.int8), (src, dst)), shape=(count, count))
    label: IntArray = connected_components(matrix, directed=True, connection="strong")[1].astype(np.int32)
    return label
