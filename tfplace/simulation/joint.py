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

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.by_address import ByAddress
from tfplace.core.kernels import allocating_helper, allocating_kernel, helper

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
    """

    h: FloatArray
    seconds: FloatArray
    incoming: Incoming
    sending: Sending
    rest: FloatArray
    seen: LongArray
    found: FloatArray


def heads(incoming: Incoming, seconds: FloatArray, sending: Sending) -> FloatArray:
    """[V, D] seconds that pass at least before op v can start on device d; infinite where it may not be.

    Args:
      incoming: edges.
      seconds: [V, D] of ops, infinite where they may not be.
      sending: of transfers.
    """
    twin = twins(seconds, sending)
    kept = _pairs(twin)
    shape = len(seconds), len(kept)
    seen, found = np.full(shape[0], -1, np.int64), np.zeros((4, _MOST))
    between = Sending(*(np.ascontiguousarray(table[np.ix_(kept, kept)]) for table in sending))
    work = _Work(
        np.zeros(shape), np.ascontiguousarray(seconds[:, kept]), incoming, between, np.zeros(shape), seen, found
    )
    place = np.searchsorted(kept, twin[kept]).astype(np.int32)
    _heads(ByAddress(work), place)
    return np.ascontiguousarray(work.h[:, np.searchsorted(kept, twin)])


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


@allocating_kernel
def _heads(work: _Work, twin: IntArray) -> None:
    ops, devices = work.h.shape
    for v in range(ops):
        for d in range(devices):
            if twin[d] != d:
                work.h[v, d] = work.h[v, twin[d]]
            elif np.isfinite(work.seconds[v, d]):
                path = _by_paths(work, v, d)
                count = _gather(work, v, d, path)
                work.h[v, d] = max(path, _forced(work.found, count)) if count > 1 else path
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


@allocating_helper
def _gather(work: _Work, v: int, d: int, above: float) -> int:
    """Fills `found` with ops before v; how many there are.

    Ops are taken from the last on, so the rest of each is final before it is used. One whose `elsewhere` is not above
    what is known already is of no use; what comes before it is even less.
    """
    waiting = [0]
    waiting.pop()
    _look_before(work, waiting, v, v * work.h.shape[1] + d, d)
    count = 0
    while len(waiting) > 0 and count < _MOST:
        u = -heapq.heappop(waiting)
        elsewhere = np.inf
        for a in range(work.h.shape[1]):
            if a != d:
                elsewhere = min(elsewhere, work.h[u, a] + work.seconds[u, a] + work.rest[u, a])
        if elsewhere > above and np.isfinite(work.seconds[u, d]):
            work.found[0, count], work.found[1, count] = elsewhere, work.h[u, d]
            work.found[2, count], work.found[3, count] = work.seconds[u, d], work.rest[u, d]
            count += 1
            _look_before(work, waiting, u, v * work.h.shape[1] + d, -1)
    return count


@allocating_helper
def _look_before(work: _Work, waiting: list[int], w: int, turn: int, only: int) -> None:
    """Brings the rest of what w reads up to date; w is on device `only`, where it starts, or on any if that is -1."""
    devices = work.h.shape[1]
    for e in range(work.incoming.first[w], work.incoming.first[w + 1]):
        u = work.incoming.src[e]
        if work.seen[u] != turn:
            work.seen[u] = turn
            work.rest[u, :] = 0.0
            heapq.heappush(waiting, -u)
        for a in range(devices):
            soonest = np.inf
            if only >= 0:
                soonest = _sent(work, e, a, only)
            else:
                for b in range(devices):
                    soonest = min(soonest, _sent(work, e, a, b) + work.seconds[w, b] + work.rest[w, b])
            work.rest[u, a] = max(work.rest[u, a], soonest)


@allocating_helper
def _forced(found: FloatArray, count: int) -> float:
    """The largest over k of the smaller of the k-th elsewhere and the time the first k take one after the other."""
    latest_first = np.argsort(-found[0, :count])
    elsewhere, head, work, tail = (
        found[0][latest_first],
        found[1][latest_first],
        found[2][latest_first],
        found[3][latest_first],
    )
    low, high = 0, count - 1
    while low < high:  # the first k at which being together is no longer the quicker way
        middle = (low + high) // 2
        if one_machine(head[: middle + 1], work[: middle + 1], tail[: middle + 1]) >= elsewhere[middle]:
            high = middle
        else:
            low = middle + 1
    best = min(elsewhere[low], one_machine(head[: low + 1], work[: low + 1], tail[: low + 1]))
    if low > 0:
        best = max(best, min(elsewhere[low - 1], one_machine(head[:low], work[:low], tail[:low])))
    return float(best)


@allocating_helper
def one_machine(head: FloatArray, work: FloatArray, tail: FloatArray) -> float:
    """Seconds from 0 until the tails of all tasks are over, one at a time, if they may be interrupted.

    Args:
      head: [N] each starts no earlier.
      work: [N] seconds.
      tail: [N] seconds that follow.
    """
    order = np.argsort(head)
    ready = [(0.0, 0.0)]
    ready.pop()
    now = over = 0.0
    i = 0
    while i < len(order) or len(ready) > 0:
        if len(ready) == 0:
            now = max(now, head[order[i]])
        while i < len(order) and head[order[i]] <= now:
            heapq.heappush(ready, (-tail[order[i]], work[order[i]]))
            i += 1
        soonest = head[order[i]] if i < len(order) else np.inf
        less_tail, left = heapq.heappop(ready)
        if now + left <= soonest:
            now += left
            over = max(over, now - less_tail)
        else:
            heapq.heappush(ready, (less_tail, left - (soonest - now)))
            now = soonest
    return over
