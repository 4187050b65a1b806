"""How vertices of an acyclic graph can be put together without a cycle.

What waits for what is given as in `tfplace.execution.dependencies.Dependencies`: before vertex v are `before[first[v]]`
to `before[first[v + 1] - 1]`.
"""

# mypy: disable-error-code="no-any-return, untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.kernels import helper, kernel


def topological(first: IntArray, before: IntArray) -> IntArray:
    """[N] the vertices, each after those before it, and by number as far as that allows.

    Args:
      first: [N + 1] offsets.
      before: [E] vertices.

    Raises:
      ValueError: a vertex waits for itself, through others.
    """
    out = np.empty(len(first) - 1, np.int32)
    _sort(first, before, np.zeros(len(out), np.bool_), np.empty(len(before) + 1, np.int32), out)
    return out


@kernel
def _sort(first: IntArray, before: IntArray, done: BoolArray, todo: IntArray, out: IntArray) -> None:
    """Depth first; a vertex is asked for once for each that waits for it, so `todo` never holds more than E + 1."""
    count = 0
    for root in range(len(out)):
        todo[0], top = root, 1
        while top > 0:
            v, end = todo[top - 1], top
            if not done[v]:
                for e in range(first[v + 1] - 1, first[v] - 1, -1):
                    if not done[before[e]]:
                        if end == len(todo):
                            raise ValueError("received vertices that wait for themselves; expected none")
                        todo[end] = before[e]
                        end += 1
                if end == top:
                    done[v] = True
                    out[count] = v
                    count += 1
            top = end if end > top else top - 1


def changes(first: IntArray, before: IntArray, order: IntArray, label: IntArray) -> IntArray:
    """[N] the most changes of label on a path to each vertex: this never falls along an edge, and rises between labels.

    Args:
      first: [N + 1] offsets.
      before: [E] vertices.
      order: [N] see `topological`.
      label: [N] of each vertex.
    """
    out = np.zeros(len(label), np.int32)
    _count(first, before, order, label, out)
    return out


@kernel
def _count(first: IntArray, before: IntArray, order: IntArray, label: IntArray, out: IntArray) -> None:
    for v in order:
        for e in range(first[v], first[v + 1]):
            u = before[e]
            out[v] = max(out[v], out[u] + (label[u] != label[v]))


def merged(first: IntArray, before: IntArray, label: IntArray, level: IntArray) -> IntArray:
    """[N] blocks of vertices of one label that can each be done at once without a cycle; -1 for those of label -1.

    Vertices of one label and level are a block, as an edge between two such goes up a level. Blocks of one label are
    then joined, from low levels to high, where no path goes from one to the other through something else.

    Args:
      first: [N + 1] offsets.
      before: [E] vertices.
      label: [N] of each vertex.
      level: [N] of each vertex, such as `changes`; never lower than of what is before it, and higher than of what is
        before it and has another label.
    """
    labelled = np.flatnonzero(label >= 0)
    key = np.stack([level[labelled], label[labelled]], axis=1)
    kinds, earliest, of = np.unique(key, axis=0, return_index=True, return_inverse=True)
    by_level, count = np.lexsort((earliest, kinds[:, 0])), len(kinds)
    kinds, number = kinds[by_level], np.empty(count, np.int32)
    number[by_level] = np.arange(count, dtype=np.int32)
    place = count + np.arange(len(label), dtype=np.int32)
    place[labelled] = number[of.reshape(-1)]
    own = np.concatenate([kinds[:, 0], level]).astype(np.int32)
    places, after = _following(place, first, before, len(own))
    joins = _Joins(places, after, own, *(np.full(size, -1, np.int32) for size in _sizes(len(own))))
    joins.joined[:] = joins.tail[:] = np.arange(len(own))
    last = np.full(int(label.max(initial=-1)) + 1, -1, np.int32)
    _join(joins, kinds[:, 1].astype(np.int32), last)
    out = np.where(label >= 0, joins.joined[place], -1)
    return out.astype(np.int32)


class _Joins(NamedTuple):
    """Blocks, and vertices in none, which are one place each; [P] but for `after`.

    Attributes:
      first: [P + 1] offsets into `after`.
      after: places that wait for each.
      level: lowest of each, which rises with the number of a block.
      joined: the block that each has become a part of, or itself.
      following: the next part of the same block, or -1.
      tail: the last part of a block.
      seen: the block for which each was met last.
      todo: places that are still to be looked at.
    """

    first: IntArray
    after: IntArray
    level: IntArray
    joined: IntArray
    following: IntArray
    tail: IntArray
    seen: IntArray
    todo: IntArray


def _sizes(places: int) -> tuple[int, ...]:
    return (places,) * (len(_Joins._fields) - 3)


def _following(place: IntArray, first: IntArray, before: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """[P + 1] offsets and what they are into: the places that wait for each, once."""
    src, dst = place[before].astype(np.int64), place[np.repeat(np.arange(len(place)), np.diff(first))]
    key = np.unique((src * count + dst)[src != dst])
    offsets = np.searchsorted(key, np.arange(count + 1, dtype=np.int64) * count)
    return offsets.astype(np.int32), (key % max(count, 1)).astype(np.int32)


@kernel
def _join(joins: _Joins, label: IntArray, last: IntArray) -> None:
    """Joins each block to the last of its label, if it can; `last` [labels] is -1 before."""
    for one in range(len(label)):
        start = last[label[one]]
        if start < 0 or _passes(joins, start, one):
            last[label[one]] = one
            continue
        joins.joined[one] = start
        joins.following[joins.tail[start]] = one
        joins.tail[start] = one


@helper
def _passes(joins: _Joins, start: int, end: int) -> bool:
    """Whether a path goes from one block to another through a third; levels above the second's cannot come back."""
    joins.seen[start] = end
    top = _look(joins, start, end, 0, False)
    while top > 0:
        top -= 1
        top = _look(joins, joins.todo[top], end, top, True)
    return top < 0


@helper
def _look(joins: _Joins, start: int, end: int, top: int, ends: bool) -> int:
    """Adds to `todo`, with `top` in it, what follows a block and was not met; -1 if `ends` and the end follows."""
    part = start
    while part >= 0:
        for e in range(joins.first[part], joins.first[part + 1]):
            one = joins.joined[joins.after[e]]
            if one == end:
                if ends:
                    return -1
            elif joins.seen[one] != end and joins.level[one] <= joins.level[end]:
                joins.seen[one] = end
                joins.todo[top] = one
                top += 1
        part = joins.following[part]
    return top
