"""What every grouper promises in the end: groups that keep the rules, and not more of them than asked for."""

from __future__ import annotations

import heapq

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.errors import InputError
from tfplace.group.acyclic import precedence
from tfplace.group.merge import renumber
from tfplace.group.unit_graph import UnitGraph, unit_graph


def finish(problem: Problem, label: IntArray, count: int, graph: UnitGraph | None = None) -> IntArray:
    """[U] the groups, split where a rule asks for it and then joined down to `count`; numbered by first unit.

    The rules: units of one group may be on the same devices, and a group of several units holds at most `ROOM` of its
    smallest device's memory in variables (`UnitGraph.room_bytes`). At most `count` groups are left unless there are
    more kinds of units than that, or joining any two neighbors of one kind would break the memory rule.

    Args:
      problem: what is placed.
      label: [U] any groups.
      count: upper goal.
      graph: of the problem, if it is at hand.

    Raises:
      InputError: `count` is below 1.
    """
    check_count(count)
    graph = unit_graph(problem) if graph is None else graph
    rank = precedence(problem).rank
    label = keep_limits(graph, label, rank)
    return renumber(squeeze(graph, label, count, rank))


def check_count(count: int) -> None:
    """Refuses goals below 1.

    Raises:
      InputError: see above.
    """
    if count < 1:
        raise InputError(f"{count} groups", "at least 1 group")


def keep_limits(graph: UnitGraph, label: IntArray, rank: IntArray) -> IntArray:
    """[U] groups of one kind each whose variables take at most the room; split in the order of `rank`.

    A unit that is larger than the room by itself becomes a group of its own.
    """
    kinds = max(len(graph.room_bytes), 1)
    out = label.astype(np.int64) * kinds + graph.kind
    giant = np.flatnonzero(graph.size_bytes > graph.room_bytes[graph.kind])
    out[giant] = out.max(initial=-1) + 1 + np.arange(len(giant))
    label = renumber(out)
    fresh = int(label.max(initial=-1)) + 1
    out = label.astype(np.int64)
    for group in np.flatnonzero(np.bincount(label, graph.size_bytes) > _room(graph, label)).tolist():
        units, filled = np.flatnonzero(label == group), 0.0
        for unit in units[np.argsort(rank[units], kind="stable")].tolist():
            size = float(graph.size_bytes[unit])
            if filled + size > graph.room_bytes[graph.kind[unit]]:
                fresh, filled = fresh + 1, 0.0
            filled += size
            out[unit] = fresh
        fresh += 1
    return renumber(out)


def _room(graph: UnitGraph, label: IntArray) -> FloatArray:
    """[G] bytes of variables each group, of units of one kind, may hold."""
    room = np.zeros(int(label.max(initial=-1)) + 1)
    room[label] = graph.room_bytes[graph.kind]
    return room


def squeeze(graph: UnitGraph, label: IntArray, count: int, rank: IntArray) -> IntArray:
    """[U] at most `count` groups where the rules permit: neighbors in order are joined, least seconds first.

    Groups of each kind are lined up by the lowest rank of their units. Units with only one device to be on are joined
    before all others, since nothing is to be decided about them.

    Args:
      graph: of the problem.
      label: [U] groups that keep the rules, numbered from 0.
      count: upper goal.
      rank: [U] position of each unit.
    """
    groups = int(label.max(initial=-1)) + 1
    if groups <= count:
        return label
    line = _Line(graph, label, rank)
    heap = [entry for a in range(groups) for entry in line.offer(a)]
    heapq.heapify(heap)
    while heap and groups > count:
        *_, a, b, version = heapq.heappop(heap)
        if line.after[a] != b or line.version[a] + line.version[b] != version:
            continue  # one of them has been joined since
        line.join(a, b)
        groups -= 1
        for entry in (*line.offer(line.before[a]), *line.offer(a)):
            heapq.heappush(heap, entry)
    return line.joined()[label]


class _Line:
    """Groups of one kind in a row; joining two makes the left one hold both.

    Args:
      graph: of the problem.
      label: [U].
      rank: [U].
    """

    def __init__(self, graph: UnitGraph, label: IntArray, rank: IntArray) -> None:
        count = int(label.max()) + 1
        kind = np.empty(count, np.int32)
        kind[label] = graph.kind
        self.seconds = np.bincount(label, graph.seconds, count).tolist()
        self.size = np.bincount(label, graph.size_bytes, count).tolist()
        self.room = graph.room_bytes[kind].tolist()
        self.decided = graph.decided[kind].tolist()
        first = np.full(count, len(rank), np.int32)
        np.minimum.at(first, label, rank)
        self.after, self.before = _neighbours(first, kind)
        self.version = [0] * count
        self._into = np.arange(count, dtype=np.int32)

    def offer(self, a: int) -> list[tuple[bool, float, int, int, int]]:
        """The join of group `a` with the one after it, if there is one that fits."""
        if a < 0 or self.after[a] < 0:
            return []
        b = self.after[a]
        if self.size[a] + self.size[b] > self.room[a]:
            return []
        return [(not self.decided[a], self.seconds[a] + self.seconds[b], a, b, self.version[a] + self.version[b])]

    def join(self, a: int, b: int) -> None:
        """Makes group `b`, the one after `a`, a part of it."""
        self.seconds[a] += self.seconds[b]
        self.size[a] += self.size[b]
        self.version[a] += self.version[b] + 1
        self._into[b] = a
        self.after[a], self.after[b] = self.after[b], -1
        if self.after[a] >= 0:
            self.before[self.after[a]] = a

    def joined(self) -> IntArray:
        """[G] the group each is a part of now."""
        into = self._into
        while not np.array_equal(into, into[into]):
            into = into[into]
        return into


def _neighbours(position: IntArray, kind: IntArray) -> tuple[list[int], list[int]]:
    """The group after and before each in the order of position within its kind; -1 for none."""
    order = np.lexsort((position, kind))
    same = kind[order][1:] == kind[order][:-1]
    after, before = np.full(len(order), -1), np.full(len(order), -1)
    after[order[:-1][same]] = order[1:][same]
    before[order[1:][same]] = order[:-1][same]
    return after.tolist(), before.tolist()
