"""The simulation kernel: docs/simulator.md, event by event, on the flat arrays of `Program` and `Scratch`.

Compiled by numba and cached. Everything is in this one file because numba's cache does not see changes to functions of
other files. Three facts keep it quick:

- A device's ready queue needs no heap. Time only grows, so an op that becomes ready goes to the end of the queue,
  before at most the ops that became ready at the same instant and have a higher index.
- A transfer that has to wait starts exactly when one requested before it ends, so it hangs on that one's list until
  then. The heap of events holds only the transfers under way.
- Changes of one instant take effect together, so memory is summed in any order and looked at when time moves on.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.simulate.program import Program, Scratch

SENT, HEAP, CHANGES, MOVED = range(4)

# Without numba's runtime arrays are not reference counted, which each call of a helper would pay for with two atomic
# operations per array (some twentyfold in all). It forbids allocating arrays here, which nothing does.
kernel = nb.njit(cache=True, error_model="numpy", _nrt=False)
inlined = nb.njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)


@kernel
def spread(p: Program, s: Scratch, unit_device: IntArray) -> None:
    """Writes the device of every op, given that of every unit, into the scratch."""
    for v in range(len(p.unit)):
        s.device[v] = unit_device[p.unit[v]] if p.unit[v] >= 0 else 0


@kernel
def run(p: Program, s: Scratch, record: bool) -> float:
    """Simulates one step with the devices in `s.device`; returns its seconds, everything else is in the scratch.

    Args:
      p: the compiled problem.
      s: overwritten.
      record: whether to write the list of memory changes.
    """
    _reset(p, s)
    now = 0.0
    while True:
        for d in range(len(s.head)):
            if s.running[d] < 0 and s.head[d] < s.tail[d]:
                _start(p, s, d, now)
        finishes = _next_finish(s)
        arrives = s.sent_end[s.heap[0]] if s.counter[HEAP] > 0 else np.inf
        then = min(finishes, arrives)
        if then > now:
            _settle(s, now, record)
            if then == np.inf:
                return now
            now = then
        while finishes == now:
            _finish(p, s, _first_to_finish(s, now), now)
            finishes = _next_finish(s)
        while s.counter[HEAP] > 0 and s.sent_end[s.heap[0]] == now:
            _arrive(p, s, _pop(s), now)


@kernel
def excess(p: Program, s: Scratch) -> int:
    """Bytes over the limits, summed over devices, after `run`."""
    total = 0
    for d in range(len(p.limit)):
        total += max(s.peak[d] - p.limit[d], 0)
    return total


@kernel
def key(p: Program, s: Scratch, unit_device: IntArray) -> tuple[int, float]:
    """`spread`, `run` and `excess` in one call."""
    spread(p, s, unit_device)
    seconds = run(p, s, False)
    return excess(p, s), seconds


@inlined
def _reset(p: Program, s: Scratch) -> None:
    s.start[:] = 0.0
    s.finish[:] = 0.0
    s.running[:] = -1
    s.until[:] = np.inf
    s.refs[:] = 0
    s.in_use[:] = 0
    s.shown[:] = -1
    s.peak[:] = 0
    s.compute[:] = 0.0
    s.active[:] = 0
    s.transfer[:] = 0.0
    s.free_s[:] = 0.0
    s.last[:] = -1
    s.counter[:] = 0
    s.tail[:] = 0
    for v in range(len(s.device)):
        s.missing[v] = p.reads[v]
        if p.simulated[v]:
            s.tail[s.device[v]] += 1
            s.in_use[s.device[v]] += p.persistent[v]
    begin = 0
    for d in range(len(s.head)):
        s.head[d] = begin
        begin += s.tail[d]
        s.tail[d] = s.head[d]
    for v in range(len(s.device)):
        if p.simulated[v] and s.missing[v] == 0:
            _enqueue(s, v, 0.0)


@inlined
def _enqueue(s: Scratch, v: int, now: float) -> None:
    d = s.device[v]
    i = s.tail[d]
    while i > s.head[d] and s.queue_s[i - 1] == now and s.queue[i - 1] > v:
        s.queue[i] = s.queue[i - 1]
        s.queue_s[i] = now
        i -= 1
    s.queue[i] = v
    s.queue_s[i] = now
    s.tail[d] += 1


@inlined
def _start(p: Program, s: Scratch, d: int, now: float) -> None:
    v = s.queue[s.head[d]]
    s.head[d] += 1
    s.running[d] = v
    s.start[v] = now
    s.finish[v] = now + p.seconds[v, d]
    s.until[d] = s.finish[v]
    s.compute[d] += p.seconds[v, d]
    for m in range(p.first[v], p.first[v + 1]):
        s.refs[m, d] = 1  # the op itself, until it finishes
        if p.alias[m] >= 0:
            s.refs[p.alias[m], d] += 1
        else:
            s.in_use[d] += p.size[m]


@inlined
def _next_finish(s: Scratch) -> float:
    soonest = np.inf
    for d in range(len(s.until)):
        soonest = min(soonest, s.until[d])
    return soonest


@inlined
def _first_to_finish(s: Scratch, now: float) -> int:
    """The device whose op finishes now, of several the one with the lowest op."""
    found = -1
    for d in range(len(s.until)):
        if s.until[d] == now and (found < 0 or s.running[d] < s.running[found]):
            found = d
    return found


@inlined
def _finish(p: Program, s: Scratch, d: int, now: float) -> None:
    v = s.running[d]
    s.running[d] = -1
    s.until[d] = np.inf
    for i in range(p.input_first[v], p.input_first[v + 1]):
        _release(p, s, p.input[i], d)
    for m in range(p.first[v], p.first[v + 1]):
        remote = 0
        for r in range(p.reader_first[m], p.reader_first[m + 1]):
            reader = p.reader[r]
            to = s.device[reader]
            s.readers[to] += 1
            if to == d:
                _receive(s, reader, now)
            else:
                remote += 1
        s.refs[m, d] += s.readers[d]
        s.readers[d] = 0
        if remote:
            for to in range(len(s.readers)):
                if s.readers[to]:
                    s.refs[m, d] += 1
                    s.refs[m, to] = s.readers[to]
                    s.readers[to] = 0
                    _send(p, s, m, to, now)
        _release(p, s, m, d)


@inlined
def _receive(s: Scratch, v: int, now: float) -> None:
    s.missing[v] -= 1
    if s.missing[v] == 0:
        _enqueue(s, v, now)


@inlined
def _release(p: Program, s: Scratch, m: int, d: int) -> None:
    """One holder less of the copy of message m on d; a freed alias lets go of what it stands for."""
    while True:
        s.refs[m, d] -= 1
        if s.refs[m, d] > 0:
            return
        if p.alias[m] < 0 or s.device[p.maker[m]] != d:
            s.in_use[d] -= p.size[m]
            return
        m = p.alias[m]


@inlined
def _send(p: Program, s: Scratch, m: int, to: int, now: float) -> None:
    d = s.device[p.maker[m]]
    x = s.counter[SENT]
    s.counter[SENT] += 1
    s.counter[MOVED] += p.moved[m]
    begin = now
    blocker = -1
    for k in range(p.channels.shape[2]):
        channel = p.channels[d, to, k]
        if channel >= 0 and s.free_s[channel] > begin:
            begin = s.free_s[channel]
            blocker = s.last[channel]
    trips = p.trips[p.maker[m]]
    end = begin + (trips * p.latency[d, to] + trips * p.size[m] / p.bandwidth[d, to])
    s.sent[x] = m
    s.sent_to[x] = to
    s.sent_start[x] = begin
    s.sent_end[x] = end
    s.blocks[x] = -1
    for k in range(p.channels.shape[2]):
        channel = p.channels[d, to, k]
        if channel >= 0:
            s.free_s[channel] = end
            s.last[channel] = x
    if blocker < 0:
        _depart(p, s, x, now)
    else:
        s.after[x] = s.blocks[blocker]
        s.blocks[blocker] = x


@inlined
def _depart(p: Program, s: Scratch, x: int, now: float) -> None:
    m = s.sent[x]
    to = s.sent_to[x]
    s.in_use[to] += p.size[m]
    for d in (s.device[p.maker[m]], to):
        if s.active[d] == 0:
            s.since[d] = now
        s.active[d] += 1
    _push(s, x)


@inlined
def _arrive(p: Program, s: Scratch, x: int, now: float) -> None:
    m = s.sent[x]
    to = s.sent_to[x]
    came = s.device[p.maker[m]]
    for d in (came, to):
        s.active[d] -= 1
        if s.active[d] == 0:
            s.transfer[d] += now - s.since[d]
    waiting = s.blocks[x]
    while waiting >= 0:
        _depart(p, s, waiting, now)
        waiting = s.after[waiting]
    for r in range(p.reader_first[m], p.reader_first[m + 1]):
        if s.device[p.reader[r]] == to:
            _receive(s, p.reader[r], now)
    _release(p, s, m, came)


@inlined
def _settle(s: Scratch, now: float, record: bool) -> None:
    """The instant is over: what is in use now counts."""
    for d in range(len(s.in_use)):
        if s.in_use[d] == s.shown[d]:
            continue
        s.shown[d] = s.in_use[d]
        s.peak[d] = max(s.peak[d], s.in_use[d])
        if record:
            c = s.counter[CHANGES]
            s.change_s[c] = now
            s.change_device[c] = d
            s.change_bytes[c] = s.in_use[d]
            s.counter[CHANGES] += 1


@inlined
def _earlier(s: Scratch, x: int, y: int) -> bool:
    return s.sent_end[x] < s.sent_end[y] or (s.sent_end[x] == s.sent_end[y] and x < y)


@inlined
def _push(s: Scratch, x: int) -> None:
    i = s.counter[HEAP]
    s.counter[HEAP] += 1
    while i > 0:
        parent = (i - 1) >> 1
        if not _earlier(s, x, s.heap[parent]):
            break
        s.heap[i] = s.heap[parent]
        i = parent
    s.heap[i] = x


@inlined
def _pop(s: Scratch) -> int:
    top: int = s.heap[0]
    s.counter[HEAP] -= 1
    n = s.counter[HEAP]
    x = s.heap[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _earlier(s, s.heap[child + 1], s.heap[child]):
            child += 1
        if not _earlier(s, s.heap[child], x):
            break
        s.heap[i] = s.heap[child]
        i = child
    s.heap[i] = x
    return top
