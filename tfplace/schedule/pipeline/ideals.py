"""Ideals of a partial order: the sets that a pipeline may have done when it hands over to the next device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import IntArray


class Ideals(NamedTuple):
    """Sets that with an element have all that comes before it, the smaller first; [N] of them.

    Attributes:
      member: [N, B] whether an element is in the set.
      first: [N + 1] from set i, adding one element gives the sets `larger[first[i]:first[i + 1]]`.
      added: that element.
      larger: that set.
    """

    member: NDArray[np.bool_]
    first: IntArray
    added: IntArray
    larger: IntArray


def all_ideals(count: int, before: IntArray, limit: int) -> Ideals | None:
    """Every ideal of a partial order; None if there are more than `limit`.

    Args:
      count: B, elements.
      before: [E, 2] pairs of which the first comes before the second.
      limit: of N.
    """
    needs: list[int]
    after: list[list[int]]
    needs, after = [0] * count, [[] for _ in range(count)]
    for a, b in before.tolist():
        needs[b] |= 1 << a
        after[a].append(b)
    ids, sets, ready = {0: 0}, [0], [[b for b in range(count) if not needs[b]]]
    first, added, larger = [0], [], []
    for i, ideal in enumerate(sets):  # grows meanwhile, in order of size: an element added makes a set one larger
        for b in ready[i]:
            grown = ideal | 1 << b
            if grown not in ids:
                if len(sets) >= limit:
                    return None
                ids[grown] = len(sets)
                sets.append(grown)
                freed = [c for c in dict.fromkeys(after[b]) if not needs[c] & ~grown]
                ready.append([c for c in ready[i] if c != b] + freed)
            added.append(b)
            larger.append(ids[grown])
        ready[i] = []
        first.append(len(added))
    return Ideals(_members(sets, count), *(np.array(a, np.int32) for a in (first, added, larger)))


def chain(order: IntArray) -> Ideals:
    """The prefixes of one order of the elements."""
    count = len(order)
    member = np.zeros((count + 1, count), np.bool_)
    for i, b in enumerate(order.tolist()):
        member[i + 1 :, b] = True
    first = np.minimum(np.arange(count + 2), count).astype(np.int32)
    return Ideals(member, first, order.astype(np.int32), np.arange(1, count + 1, dtype=np.int32))


def depth_first_order(count: int, before: IntArray) -> IntArray:
    """[B] a topological order that goes on with what has just become possible, so that branches stay together."""
    after: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for a, b in before.tolist():
        after[a].append(b)
        waiting[b] += 1
    ready = [b for b in range(count - 1, -1, -1) if not waiting[b]]
    order = []
    while ready:
        a = ready.pop()
        order.append(a)
        for b in after[a]:
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    return np.array(order, np.int32)


def _members(sets: list[int], count: int) -> NDArray[np.bool_]:
    width = (count + 7) // 8
    rows = np.frombuffer(b"".join(s.to_bytes(width, "little") for s in sets), np.uint8).reshape(len(sets), width)
    return np.unpackbits(rows, axis=1, count=count, bitorder="little").astype(np.bool_)
