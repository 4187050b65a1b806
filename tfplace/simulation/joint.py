"""Heads: the least time before an op can start, from what must happen together on its device before it.

Let v be on device d. For an op u before v, `rest[u, a]` is the least time between the end of u on device a and the
start of v: along every path from u to v, ops and transfers, on the best devices. So if u is not on d, v starts no
earlier than

    elsewhere[u] = min over devices a other than d of  h[u, a] + s[u, a] + rest[u, a]

where h is the head and s the seconds. Let the ops before v be sorted by this, the latest first. For every k, either one
of the first k is on another device, and v starts no earlier than the k-th `elsewhere`; or all of them are on d, which
runs one after the other: u not before h[u, d], v not before rest[u, d] after it. The least end of such a sequence, were
ops divisible, is Jackson's preemptive schedule (J. Carlier: The one-machine sequencing problem, European Journal of
Operational Research 11, 1982), and v starts no earlier. So the smaller of the two is a lower bound for every k, and the
largest of these is the head. The argument is that of C. H. Papadimitriou, M. Yannakakis: Towards an
architecture-independent analysis of parallel algorithms, SIAM Journal on Computing 19(2), 1990, section 2, with unlike
delays and devices.

Leaving out ops, or paths, makes all of these smaller. So it is enough to look at the ops whose `elsewhere` is above
what single paths say, and at the last of them only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.by_address import ByAddress
from tfplace.core.kernels import helper, kernel

_MOST = 400
"""Ops looked at for each op and device."""


class Incoming(NamedTuple):
    """What each op waits for: edges by reader, which comes after all it reads.

    Attributes:
      first: [V + 1] where the edges into each op begin.
      src: [E] op that is read.
      trips: [E] transfers an edge stands for.
      volume: [E] bytes of all of them.
      same_unit: [E] whether both ends are on one device whatever the placement.
    """

    first: LongArray
    src: IntArray
    trips: FloatArray
    volume: FloatArray
    same_unit: BoolArray


class Sending(NamedTuple):
    """[D, D] seconds of a transfer, and of each of its bytes; 0 on the diagonal."""

    per_transfer: FloatArray
    per_byte: FloatArray


class _Work(NamedTuple):
    """What the kernels share.

    Attributes:
      h: [V, D] heads, final for the ops before the one at hand.
      seconds: [V, D] of ops, infinite where they may not be.
      incoming: edges.
      sending: of transfers.
      rest: [V, D] for the op and device at hand; holds where `seen` is of this turn.
      seen: [V] turn in which an op was met last.
      found: [4, most] elsewhere, head, seconds and rest on the device at hand, of the ops found before it.
      by_head: [most] the found ops in the order of their heads.
      turn: [most] position of each found op when those with the latest `elsewhere` are first.
      heap: [2, V + most] pairs.
    """

    h: FloatArray
    seconds: FloatArray
    incoming: Incoming
    sending: Sending
    rest: FloatArray
    seen: LongArray
    found: FloatArray
    by_head: LongArray
    turn: LongArray
    heap: FloatArray


def heads(incoming: Incoming, seconds: FloatArray, sending: Sending) -> FloatArray:
    """[V, D] seconds that pass at least before op v can start on device d; infinite where it may not be.

    Args:
      incoming: edges.
      seconds: [V, D] of ops, infinite where they may not be.
      sending: of transfers.
    """
    twin = twins(seconds, sending)
    kept = _pairs(twin)
    between = Sending(*(np.ascontiguousarray(table[np.ix_(kept, kept)]) for table in sending))
    work = make_work(incoming, np.ascontiguousarray(seconds[:, kept]), between)
    place = np.searchsorted(kept, twin[kept]).astype(np.int32)
    _heads(ByAddress(work), place)
    return np.ascontiguousarray(work.h[:, np.searchsorted(kept, twin)])


def make_work(incoming: Incoming, seconds: FloatArray, sending: Sending, most: int = _MOST) -> _Work:
    """What the kernels need, of which the heads are to be found.

    Args:
      incoming: edges.
      seconds: [V, D] of ops.
      sending: of transfers.
      most: ops that are looked at for each.
    """
    shape = seconds.shape
    return _Work(
        np.zeros(shape), seconds, incoming, sending, np.zeros(shape), np.full(shape[0], -1, np.int64),
        np.zeros((4, most)), np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros((2, shape[0] + most)),
    )  # fmt: skip


def _pairs(twin: IntArray) -> IntArray:
    """[N] the first two devices of those that are each other's twins: one to be on, one to be elsewhere.

    What is said of a device and of another one is the same for every two of them, and no way over a third is shorter.
    """
    order = np.argsort(twin, kind="stable")
    rank = np.arange(len(twin)) - np.searchsorted(twin[order], twin[order])
    kept: IntArray = np.sort(order[rank < 2]).astype(np.int32)
    return kept


def twins(rows: FloatArray, tables: Sequence[FloatArray]) -> IntArray:
    """[D] the first device with which each one could change names and nothing else would change.

    Args:
      rows: [..., D] what there is to say of each device.
      tables: [D, D] each, of pairs of them.
    """
    devices = rows.shape[1]
    twin = np.arange(devices, dtype=np.int32)
    for d in range(devices):
        for a in range(d):
            swapped = np.arange(devices)
            swapped[[a, d]] = d, a
            alike = all(np.array_equal(table[swapped][:, swapped], table) for table in tables)
            if twin[a] == a and alike and np.array_equal(rows[:, a], rows[:, d]):
                twin[d] = a
                break
    return twin


@kernel
def _heads(work: _Work, twin: IntArray) -> None:
    ops, devices = work.h.shape
    for v in range(ops):
        for d in range(devices):
            if twin[d] != d:
                work.h[v, d] = work.h[v, twin[d]]
            elif np.isfinite(work.seconds[v, d]):
                path = _by_paths(work, v, d)
                count = _gather(work, v, d, path)
                work.h[v, d] = max(path, _forced(work, count)) if count > 1 else path
            else:
                work.h[v, d] = np.inf


@helper
def _by_paths(work: _Work, v: int, d: int) -> float:
    """The latest of the soonest arrivals of what v reads."""
    latest = 0.0
    for e in range(work.incoming.first[v], work.incoming.first[v + 1]):
        u = work.incoming.src[e]
        soonest = work.h[u, d] + work.seconds[u, d]
        for a in range(work.h.shape[1]):
            soonest = min(soonest, work.h[u, a] + work.seconds[u, a] + _sent(work, e, a, d))
        latest = max(latest, soonest)
    return latest


@helper
def _sent(work: _Work, e: int, a: int, b: int) -> float:
    """Seconds that pass at least on edge e between device a and device b."""
    if a == b:
        return 0.0
    if work.incoming.same_unit[e]:
        return np.inf
    return float(
        work.incoming.trips[e] * work.sending.per_transfer[a, b] + work.incoming.volume[e] * work.sending.per_byte[a, b]
    )


@helper
def _gather(work: _Work, v: int, d: int, above: float) -> int:
    """Fills `found` with ops before v; how many there are.

    Ops are taken from the last on, so the rest of each is final before it is used. One whose `elsewhere` is not above
    what is known already is of no use; what comes before it is even less.
    """
    waiting = _look_before(work, 0, v, v * work.h.shape[1] + d, d)
    count = 0
    while waiting > 0 and count < len(work.by_head):
        waiting = _pop(work.heap, waiting)
        u = -int(work.heap[0, waiting])
        elsewhere = np.inf
        for a in range(work.h.shape[1]):
            if a != d:
                elsewhere = min(elsewhere, work.h[u, a] + work.seconds[u, a] + work.rest[u, a])
        if elsewhere > above and np.isfinite(work.seconds[u, d]):
            work.found[0, count], work.found[1, count] = elsewhere, work.h[u, d]
            work.found[2, count], work.found[3, count] = work.seconds[u, d], work.rest[u, d]
            count += 1
            waiting = _look_before(work, waiting, u, v * work.h.shape[1] + d, -1)
    return count


@helper
def _look_before(work: _Work, waiting: int, w: int, turn: int, only: int) -> int:
    """Brings the rest of what w reads up to date; w is on device `only`, where it starts, or on any if that is -1.

    The heap has so many ops that wait to be looked at, the last one first; returns how many it has then.
    """
    devices = work.h.shape[1]
    for e in range(work.incoming.first[w], work.incoming.first[w + 1]):
        u = work.incoming.src[e]
        if work.seen[u] != turn:
            work.seen[u] = turn
            for a in range(devices):
                work.rest[u, a] = 0.0
            waiting = _push(work.heap, waiting, -float(u), 0.0)
        for a in range(devices):
            soonest = np.inf
            if only >= 0:
                soonest = _sent(work, e, a, only)
            else:
                for b in range(devices):
                    soonest = min(soonest, _sent(work, e, a, b) + work.seconds[w, b] + work.rest[w, b])
            work.rest[u, a] = max(work.rest[u, a], soonest)
    return waiting


@helper
def _forced(work: _Work, count: int) -> float:
    """The largest over k of the smaller of the k-th elsewhere and the time the first k take one after the other."""
    _sort(work, 1, count)
    for i in range(count):
        work.by_head[count - 1 - i] = int(work.heap[1, i])
    _sort(work, 0, count)
    for i in range(count):
        work.found[0, i] = work.heap[0, i]
        work.turn[int(work.heap[1, i])] = i
    low, high = 0, count - 1
    while low < high:  # the first k at which being together is no longer the quicker way
        middle = (low + high) // 2
        if one_machine(work, count, middle + 1) >= work.found[0, middle]:
            high = middle
        else:
            low = middle + 1
    best = min(work.found[0, low], one_machine(work, count, low + 1))
    if low > 0:
        best = max(best, min(work.found[0, low - 1], one_machine(work, count, low)))
    return float(best)


@helper
def one_machine(work: _Work, count: int, first: int) -> float:
    """Seconds from 0 until the tails of some tasks are over, one at a time, if they may be interrupted.

    Args:
      work: with `found`, `by_head` and `turn`.
      count: tasks found.
      first: those whose turn is before this.
    """
    now = over = 0.0
    ready = 0
    i = _next(work, 0, count, first)
    while i < count or ready > 0:
        if ready == 0:
            now = max(now, work.found[1, work.by_head[i]])
        while i < count and work.found[1, work.by_head[i]] <= now:
            ready = _push(work.heap, ready, -work.found[3, work.by_head[i]], work.found[2, work.by_head[i]])
            i = _next(work, i + 1, count, first)
        soonest = work.found[1, work.by_head[i]] if i < count else np.inf
        ready = _pop(work.heap, ready)
        less_tail, left = work.heap[0, ready], work.heap[1, ready]
        if now + left <= soonest:
            now += left
            over = max(over, now - less_tail)
        else:
            ready = _push(work.heap, ready, less_tail, left - (soonest - now))
            now = soonest
    return over


@helper
def _next(work: _Work, i: int, count: int, first: int) -> int:
    """The first position by head, from i on, of a task whose turn is before `first`."""
    while i < count and work.turn[work.by_head[i]] >= first:
        i += 1
    return i


@helper
def _sort(work: _Work, row: int, count: int) -> None:
    """Leaves the found ops in the heap: what is in a row of `found`, the largest first, and which op's it is."""
    size = 0
    for i in range(count):
        size = _push(work.heap, size, work.found[row, i], float(i))
    while size > 0:
        size = _pop(work.heap, size)


@helper
def _push(heap: FloatArray, size: int, a: float, b: float) -> int:
    """Adds a pair to a heap with the least pair on top; returns its new size."""
    i = size
    while i > 0:
        above = (i - 1) >> 1
        if heap[0, above] < a or (heap[0, above] == a and heap[1, above] <= b):
            break
        heap[0, i], heap[1, i] = heap[0, above], heap[1, above]
        i = above
    heap[0, i], heap[1, i] = a, b
    return size + 1


@helper
def _pop(heap: FloatArray, size: int) -> int:
    """Moves the least pair of a heap behind its end; returns its new size."""
    size -= 1
    top, other = heap[0, 0], heap[1, 0]
    a, b = heap[0, size], heap[1, size]
    i = 0
    while 2 * i + 1 < size:
        below = 2 * i + 1
        if below + 1 < size and (
            heap[0, below + 1] < heap[0, below]
            or (heap[0, below + 1] == heap[0, below] and heap[1, below + 1] < heap[1, below])
        ):
            below += 1
        if a < heap[0, below] or (a == heap[0, below] and b <= heap[1, below]):
            break
        heap[0, i], heap[1, i] = heap[0, below], heap[1, below]
        i = below
    heap[0, i], heap[1, i] = a, b
    heap[0, size], heap[1, size] = top, other
    return size
