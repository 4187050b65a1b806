"""List scheduling on the flat arrays of `Tasks`, `Units` and `Plan`: by a given order, or by the earliest start.

Compiled by numba and cached. Everything is in this one file because numba's cache does not see changes to functions of
other files. Both entry points plan whole ops, one by one:

- An op waits for the messages it reads. A message is sent once to each device that reads it. Transfers wait for no
  one, or one after the other for the channels of their link (`Rule.serial`), in the order in which they are planned.
- The first op of a unit that is planned decides for the unit. It looks at its own start or finish only; or, by a given
  order and with `Rule.whole`, also at what else the unit brings to the device and what is already promised there.
- A device takes a unit only while it has memory for its variables, what its op makes and what that reads from
  elsewhere. Outputs are held until the last reader is planned, copies likewise. If no preferred device has room the
  last resorts are asked, and if none of them has, the device with the most memory free takes it: `Plan.counts[FORCED]`.
"""

# Helpers take plain arguments, which stay in registers once they are inlined; a record's fields are of type Any.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.kernels import helper, kernel
from tfplace.schedule.list_scheduling.tasks import Tasks, Units

FORCED, PLANNED, STALE = range(3)
NEVER = 2


class Rule(NamedTuple):
    """What distinguishes the methods.

    Attributes:
      serial: transfers wait for the channels of their link; else every transfer has the link to itself.
      whole: the first op of a unit decides with the rest of its unit, and what devices are promised, in mind; only by a
        given order.
      awake: devices wait for favorite children (SCT); only by the earliest start.
    """

    serial: bool
    whole: bool
    awake: bool


class Plan(NamedTuple):
    """What a kernel plans, and what it needs to know meanwhile.

    Attributes:
      unit_device: [U] device of each unit, -1 while undecided.
      start: [V] seconds.
      finish: [V] seconds.
      sent: [O, D] when each message is on each device; infinite where it is not sent.
      channel: [C] when each channel is free.
      trial: [C] the same, with the transfers of one op that is only looked at.
      room: [D] bytes that are free.
      lowest: [D] the least that ever were free.
      readers: [O] readers of each message not yet planned.
      holders: [O] the same of all messages that share a root's memory.
      tail: [D] when the last op planned there finishes.
      promised: [D] seconds of the ops of decided units that are not planned yet.
      begins: [D, N] busy stretches of each device, ascending, those that touch joined; only for gaps.
      ends: [D, N].
      stretches: [D] how many.
      score: [D] of a decision.
      counts: [3] units that went where there was no room, ops planned, estimates brought up to date.
    """

    unit_device: IntArray
    start: FloatArray
    finish: FloatArray
    sent: FloatArray
    channel: FloatArray
    trial: FloatArray
    room: LongArray
    lowest: LongArray
    readers: IntArray
    holders: IntArray
    tail: FloatArray
    promised: FloatArray
    begins: FloatArray
    ends: FloatArray
    stretches: IntArray
    score: FloatArray
    counts: LongArray


class Queues(NamedTuple):
    """Ready ops of the earliest-start kernel, a queue for each device that their unit may still go to.

    Within a queue ops are ordered by (the later of the estimate and when the device is free, place).

    Attributes:
      place: [V] position of each op in the order that breaks ties.
      missing: [V] messages not yet planned.
      chances: [V] preferred, later last-resort devices that have not turned the op away.
      stage: [V] the tier asked, or NEVER once all have turned the op away.
      wait_s: [D, 2 V] estimates of when ops could start that are later than the device is free: a heap.
      wait: [D, 2 V] their places.
      free: [D, 2 V] places of the ops whose estimate is not later: a heap.
      waiting: [D] length of the first heap.
      freed: [D] length of the other.
      favourite: [V] favorite child of each op, or -1.
      favour_s: [V] seconds the transfer to it takes.
      awaited: [D] the op a device is kept awake for, or -1.
      until: [D] until when.
    """

    place: IntArray
    missing: IntArray
    chances: IntArray
    stage: IntArray
    wait_s: FloatArray
    wait: IntArray
    free: IntArray
    waiting: IntArray
    freed: IntArray
    favourite: IntArray
    favour_s: FloatArray
    awaited: IntArray
    until: FloatArray


# ---- entry points ----------------------------------------------------------------------------------------------------


@kernel
def by_order(t: Tasks, u: Units, p: Plan, order: IntArray, rule: Rule) -> None:
    """Plans ops in a given order, each where it finishes earliest, in the first idle stretch long enough.

    Args:
      t: the tasks.
      u: the units.
      p: fresh; filled.
      order: [V'] all ops but constants, in a topological order.
      rule: see `Rule`; `awake` is not looked at.
    """
    _begin(t, u, p)
    for i in range(len(order)):
        v = order[i]
        unit = u.of_op[v]
        d = p.unit_device[unit]
        if d < 0:
            d = _choose(t, u, p, v, unit, rule)
            _decide(u, p, unit, d, rule)
        ready = _arrival(t, u, p, v, d, rule.serial)
        start = _gap(p, d, ready, t.seconds[v, d])
        _commit(t, u, p, v, d, start, rule)
        _occupy(p, d, p.start[v], p.finish[v])


@kernel
def by_start(t: Tasks, u: Units, p: Plan, q: Queues, order: IntArray, rule: Rule) -> None:
    """Plans, again and again, the ready op that can start earliest on the device where it can.

    Estimates of when transfers would arrive are brought up to date when they come to the front of their queue. Ties are
    broken by the order, then by device.

    Args:
      t: the tasks.
      u: the units.
      p: fresh; filled.
      q: fresh, with `favourite` and `favour_s` set; overwritten.
      order: [V'] all ops but constants.
      rule: see `Rule`.
    """
    _begin(t, u, p)
    _begin_queues(t, q, order)
    for i in range(len(order)):
        if q.missing[order[i]] == 0:
            _offer(t, u, p, q, order[i], 0, rule)
    while p.counts[PLANNED] < len(order):
        best, best_s, best_place = -1, np.inf, np.int64(2**60)
        for d in range(len(p.tail)):
            if _least(p, q, d) > best_s or not _front(t, u, p, q, order, d, rule):
                continue
            place = _top(q, d)
            start = _least(p, q, d)
            if rule.awake:
                start = max(start, _held(t, u, p, q, order[place], d, rule))
            if start < best_s or (start == best_s and place < best_place):
                best, best_s, best_place = d, start, place
        v, d = order[best_place], best
        if rule.awake:
            waits = _expected(t, u, p, q, best_s, rule)
            if waits >= 0:
                v, d = q.awaited[waits], waits
        if p.unit_device[u.of_op[v]] < 0 and q.stage[v] < NEVER and not _fits(t, u, p, v, u.of_op[v], d):
            _turn_away(t, u, p, q, v, d, rule)
        else:
            _run(t, u, p, q, v, d, rule)


# ---- both kernels ----------------------------------------------------------------------------------------------------


@helper
def _begin(t: Tasks, u: Units, p: Plan) -> None:
    for m in range(len(t.root)):
        p.readers[m] = t.messages[m + 1].reader_first - t.messages[m].reader_first
        p.holders[t.root[m]] += p.readers[m]
    for unit in range(len(u.fixed)):
        p.unit_device[unit] = u.fixed[unit]
        if u.fixed[unit] >= 0:
            _take(p, u.fixed[unit], u.persistent[unit])


@helper
def _arrival(t: Tasks, u: Units, p: Plan, v: int, d: int, serial: bool) -> float:
    """When all that op v reads can be on device d."""
    ready = 0.0
    tried = False
    for i in range(t.ops[v].input_first, t.ops[v + 1].input_first):
        m = t.input[i]
        at = p.sent[m, d]
        if at == np.inf:
            if serial and not tried:
                tried = True
                for c in range(len(p.channel)):
                    p.trial[c] = p.channel[c]
            at = _transfer(t, u, p, m, d, p.trial, serial)
        ready = max(ready, at)
    return ready


@helper
def _transfer(t: Tasks, u: Units, p: Plan, m: int, d: int, channel: FloatArray, serial: bool) -> float:
    """When message m is on device d if it is sent now; takes the channels until then."""
    maker = t.messages[m].maker
    a = p.unit_device[u.of_op[maker]]
    at = p.finish[maker]
    seconds = t.ops[maker].trips * t.fixed_s[a, d] + t.messages[m].volume * t.byte_s[a, d]
    if not serial:
        return at + seconds
    for k in range(t.channels.shape[2]):
        if t.channels[a, d, k] >= 0:
            at = max(at, channel[t.channels[a, d, k]])
    for k in range(t.channels.shape[2]):
        if t.channels[a, d, k] >= 0:
            channel[t.channels[a, d, k]] = at + seconds
    return at + seconds


@helper
def _take(p: Plan, d: int, size: int) -> None:
    p.room[d] -= size
    p.lowest[d] = min(p.lowest[d], p.room[d])


@helper
def _fits(t: Tasks, u: Units, p: Plan, v: int, unit: int, d: int) -> bool:
    """Whether device d has room for the unit's variables, what op v makes and what it reads from elsewhere."""
    need = u.persistent[unit]
    for m in range(t.ops[v].first, t.ops[v + 1].first):
        if t.root[m] == m and p.readers[m] > 0:
            need += t.messages[m].size
    for i in range(t.ops[v].input_first, t.ops[v + 1].input_first):
        if p.sent[t.input[i], d] == np.inf:
            need += t.messages[t.input[i]].size
    return p.room[d] >= need


@helper
def _roomiest(u: Units, p: Plan, unit: int) -> int:
    """The device with the most memory free of those the unit may be on."""
    found = -1
    for d in range(len(p.room)):
        if u.tier[unit, d] < NEVER and (found < 0 or p.room[d] > p.room[found]):
            found = d
    return found


@helper
def _decide(u: Units, p: Plan, unit: int, d: int, rule: Rule) -> None:
    p.unit_device[unit] = d
    _take(p, d, u.persistent[unit])
    if rule.whole:
        p.promised[d] += u.seconds[unit, d]


@helper
def _commit(t: Tasks, u: Units, p: Plan, v: int, d: int, start: float, rule: Rule) -> None:
    """Op v runs on device d, its unit's, from `start` on or when its inputs have really come, if that is later."""
    ready = start
    for i in range(t.ops[v].input_first, t.ops[v + 1].input_first):
        m = t.input[i]
        if p.sent[m, d] == np.inf:
            p.sent[m, d] = _transfer(t, u, p, m, d, p.channel, rule.serial)
            _take(p, d, t.messages[m].size)
        ready = max(ready, p.sent[m, d])
    p.start[v] = ready
    p.finish[v] = ready + t.seconds[v, d]
    p.tail[d] = max(p.tail[d], p.finish[v])
    p.counts[PLANNED] += 1
    if rule.whole and u.fixed[u.of_op[v]] < 0:
        p.promised[d] = max(p.promised[d] - t.seconds[v, d], 0.0)
    for m in range(t.ops[v].first, t.ops[v + 1].first):
        p.sent[m, d] = p.finish[v]
        if t.root[m] == m and p.holders[m] > 0:
            _take(p, d, t.messages[m].size)
    for i in range(t.ops[v].input_first, t.ops[v + 1].input_first):
        _release(t, u, p, t.input[i])


@helper
def _release(t: Tasks, u: Units, p: Plan, m: int) -> None:
    """One more reader of message m is planned; the last one frees its copies, and the memory it shares."""
    p.readers[m] -= 1
    home = p.unit_device[u.of_op[t.messages[m].maker]]
    if p.readers[m] == 0:
        for d in range(len(p.room)):
            if d != home and p.sent[m, d] < np.inf:
                p.room[d] += t.messages[m].size
    root = t.root[m]
    p.holders[root] -= 1
    if p.holders[root] == 0:
        p.room[p.unit_device[u.of_op[t.messages[root].maker]]] += t.messages[root].size


@helper
def _inbound(t: Tasks, u: Units, p: Plan, v: int, unit: int, d: int) -> float:
    """Seconds of the transfers that the unit's ops other than v would ask of decided units on other devices."""
    seconds = 0.0
    for i in range(u.first[unit], u.first[unit + 1]):
        w = u.members[i]
        if w == v:
            continue
        for j in range(t.ops[w].input_first, t.ops[w + 1].input_first):
            m = t.input[j]
            maker = t.messages[m].maker
            a = p.unit_device[u.of_op[maker]]
            if a >= 0 and a != d and p.sent[m, d] == np.inf:
                seconds += t.ops[maker].trips * t.fixed_s[a, d] + t.messages[m].volume * t.byte_s[a, d]
    return seconds


# ---- by a given order ------------------------------------------------------------------------------------------------


@helper
def _choose(t: Tasks, u: Units, p: Plan, v: int, unit: int, rule: Rule) -> int:
    """The device on which op v, or with `whole` its unit, finishes earliest of the best tier with room."""
    for tier in range(NEVER):
        found = -1
        for d in range(len(p.room)):
            if u.tier[unit, d] == tier and _fits(t, u, p, v, unit, d):
                ready = _arrival(t, u, p, v, d, rule.serial)
                p.score[d] = _gap(p, d, ready, t.seconds[v, d]) + t.seconds[v, d]
                if rule.whole:
                    p.score[d] += p.promised[d] + u.seconds[unit, d] - t.seconds[v, d] + _inbound(t, u, p, v, unit, d)
                if found < 0 or p.score[d] < p.score[found]:
                    found = d
        if found >= 0:
            return found
    p.counts[FORCED] += 1
    return _roomiest(u, p, unit)


@helper
def _gap(p: Plan, d: int, ready: float, seconds: float) -> float:
    """The earliest start of at least `ready` at which the device is idle for so long."""
    low, high = 0, p.stretches[d]
    while low < high:  # the first stretch that ends after `ready`
        middle = (low + high) // 2
        if p.ends[d, middle] <= ready:
            low = middle + 1
        else:
            high = middle
    while low < p.stretches[d] and p.begins[d, low] < ready + seconds:
        ready = max(ready, p.ends[d, low])
        low += 1
    return ready


@helper
def _occupy(p: Plan, d: int, start: float, finish: float) -> None:
    """Takes an idle stretch, joined with the ones it touches."""
    if finish <= start:
        return
    i = p.stretches[d]
    while i > 0 and p.begins[d, i - 1] >= start:
        i -= 1
    before = i > 0 and p.ends[d, i - 1] == start
    after = i < p.stretches[d] and p.begins[d, i] == finish
    if before and after:
        p.ends[d, i - 1] = p.ends[d, i]
        _shift(p, d, i + 1, -1)
    elif before:
        p.ends[d, i - 1] = finish
    elif after:
        p.begins[d, i] = start
    else:
        _shift(p, d, i, 1)
        p.begins[d, i] = start
        p.ends[d, i] = finish


@helper
def _shift(p: Plan, d: int, first: int, by: int) -> None:
    """Moves the stretches from `first` on by one."""
    count = p.stretches[d]
    if by > 0:
        for i in range(count, first, -1):
            p.begins[d, i] = p.begins[d, i - 1]
            p.ends[d, i] = p.ends[d, i - 1]
    else:
        for i in range(first, count):
            p.begins[d, i - 1] = p.begins[d, i]
            p.ends[d, i - 1] = p.ends[d, i]
    p.stretches[d] = count + by


# ---- by the earliest start -------------------------------------------------------------------------------------------


@helper
def _begin_queues(t: Tasks, q: Queues, order: IntArray) -> None:
    for i in range(len(order)):
        q.place[order[i]] = i
        q.missing[order[i]] = t.ops[order[i] + 1].input_first - t.ops[order[i]].input_first


@helper
def _least(p: Plan, q: Queues, d: int) -> float:
    """The start of the first op of a queue, by its estimate; infinite without one."""
    if q.freed[d] > 0 or (q.waiting[d] > 0 and q.wait_s[d, 0] <= p.tail[d]):
        return p.tail[d]
    return q.wait_s[d, 0] if q.waiting[d] > 0 else np.inf


@helper
def _top(q: Queues, d: int) -> int:
    return q.free[d, 0] if q.freed[d] > 0 else q.wait[d, 0]


@helper
def _pop(q: Queues, d: int) -> None:
    """Takes the first op out of a queue."""
    if q.freed[d] > 0:
        _pop_free(q, d)
    else:
        _pop_wait(q, d)


@helper
def _front(t: Tasks, u: Units, p: Plan, q: Queues, order: IntArray, d: int, rule: Rule) -> bool:
    """Brings the front of a device's queue up to date; whether there is one."""
    while True:
        while q.waiting[d] > 0 and q.wait_s[d, 0] <= p.tail[d]:
            _push_free(q, d, q.wait[d, 0])
            _pop_wait(q, d)
        if q.freed[d] == 0 and q.waiting[d] == 0:
            return False
        place = _top(q, d)
        v = order[place]
        decided = p.unit_device[u.of_op[v]]
        if q.missing[v] < 0 or (decided >= 0 and decided != d):
            _pop(q, d)
            continue
        arrival = _arrival(t, u, p, v, d, rule.serial)
        if arrival <= _least(p, q, d):
            return True
        p.counts[STALE] += 1
        _pop(q, d)
        _push_wait(q, d, arrival, place)


@helper
def _offer(t: Tasks, u: Units, p: Plan, q: Queues, v: int, tier: int, rule: Rule) -> None:
    """Puts a ready op into the queue of its unit's device, or into those of the devices of a tier."""
    unit = u.of_op[v]
    decided = p.unit_device[unit]
    q.stage[v] = tier
    q.chances[v] = 0
    for d in range(len(p.tail)):
        wanted = u.tier[unit, d] == tier if tier < NEVER else d == _roomiest(u, p, unit)
        if d == decided or (decided < 0 and wanted):
            q.chances[v] += 1
            _push_wait(q, d, _arrival(t, u, p, v, d, rule.serial), q.place[v])


@helper
def _turn_away(t: Tasks, u: Units, p: Plan, q: Queues, v: int, d: int, rule: Rule) -> None:
    """The first op of a device's queue has no room there; when it has none in its tier, the next one is asked."""
    _pop(q, d)
    q.chances[v] -= 1
    while q.chances[v] == 0:
        _offer(t, u, p, q, v, q.stage[v] + 1, rule)


@helper
def _run(t: Tasks, u: Units, p: Plan, q: Queues, v: int, d: int, rule: Rule) -> None:
    """Plans op v on device d, and offers the ops that waited for nothing else."""
    unit = u.of_op[v]
    start = p.tail[d]
    if rule.awake:
        start = max(start, _held(t, u, p, q, v, d, rule))
    decides = p.unit_device[unit] < 0
    if decides:
        p.counts[FORCED] += q.stage[v] == NEVER and not _fits(t, u, p, v, unit, d)
        _decide(u, p, unit, d, rule)
    q.missing[v] = -1
    _commit(t, u, p, v, d, start, rule)
    if decides and u.first[unit + 1] - u.first[unit] > 1:
        _gather(t, u, p, q, unit, d, rule)
    if rule.awake:
        _watch(u, p, q, v, d)
    for m in range(t.ops[v].first, t.ops[v + 1].first):
        for i in range(t.messages[m].reader_first, t.messages[m + 1].reader_first):
            w = t.reader[i]
            q.missing[w] -= 1
            if q.missing[w] == 0:
                _offer(t, u, p, q, w, 0, rule)


@helper
def _gather(t: Tasks, u: Units, p: Plan, q: Queues, unit: int, d: int, rule: Rule) -> None:
    """Puts the other ready ops of a unit into the queue of its device, which may have turned them away before."""
    for i in range(u.first[unit], u.first[unit + 1]):
        w = u.members[i]
        if q.missing[w] == 0:
            _push_wait(q, d, _arrival(t, u, p, w, d, rule.serial), q.place[w])


# ---- favorite children ----------------------------------------------------------------------------------------------


@helper
def _watch(u: Units, p: Plan, q: Queues, v: int, d: int) -> None:
    """Device d has run op v and stays awake for its favorite child, while that could start nowhere earlier."""
    child = q.favourite[v]
    q.awaited[d] = -1
    if child >= 0 and q.missing[child] >= 0:
        unit = u.of_op[child]
        if p.unit_device[unit] == d or (p.unit_device[unit] < 0 and u.tier[unit, d] == 0):
            q.awaited[d] = child
            q.until[d] = p.finish[v] + q.favour_s[v]


@helper
def _held(t: Tasks, u: Units, p: Plan, q: Queues, v: int, d: int, rule: Rule) -> float:
    """When op v may start on device d if that is awake for another: when it is urgent, or the other may go anywhere."""
    child = q.awaited[d]
    if child >= 0 and q.missing[child] < 0:
        q.awaited[d] = -1
    if q.awaited[d] < 0 or child == v:
        return 0.0
    urgent = 0.0
    unit = u.of_op[v]
    for e in range(len(p.tail)):
        if u.tier[unit, e] == 0:
            urgent = max(urgent, _arrival(t, u, p, v, e, rule.serial))
    return min(q.until[d], urgent)


@helper
def _expected(t: Tasks, u: Units, p: Plan, q: Queues, best_s: float, rule: Rule) -> int:
    """A device whose awaited op is ready, starts there no later than anywhere else and than `best_s`; -1 if none."""
    found = -1
    for d in range(len(p.tail)):
        child = q.awaited[d]
        if child < 0 or q.missing[child] != 0:
            continue
        unit = u.of_op[child]
        decided = p.unit_device[unit]
        start = max(p.tail[d], _arrival(t, u, p, child, d, rule.serial))
        stays = decided == d or (decided < 0 and _fits(t, u, p, child, unit, d))
        for e in range(len(p.tail)):
            if stays and decided < 0 and e != d and u.tier[unit, e] == 0:
                stays = start <= max(p.tail[e], _arrival(t, u, p, child, e, rule.serial))
        if not stays:
            q.awaited[d] = -1
        elif start <= best_s and (found < 0 or start < p.score[found]):
            p.score[d] = start
            found = d
    return found


# ---- heaps -----------------------------------------------------------------------------------------------------------


@helper
def _push_wait(q: Queues, d: int, estimate: float, place: int) -> None:
    i = q.waiting[d]
    q.waiting[d] += 1
    while i > 0:
        above = (i - 1) // 2
        if q.wait_s[d, above] < estimate or (q.wait_s[d, above] == estimate and q.wait[d, above] < place):
            break
        q.wait_s[d, i] = q.wait_s[d, above]
        q.wait[d, i] = q.wait[d, above]
        i = above
    q.wait_s[d, i] = estimate
    q.wait[d, i] = place


@helper
def _pop_wait(q: Queues, d: int) -> None:
    last = q.waiting[d] - 1
    q.waiting[d] = last
    estimate, place = q.wait_s[d, last], q.wait[d, last]
    i = 0
    while 2 * i + 1 < last:
        below = 2 * i + 1
        if below + 1 < last and _sooner(q, d, below + 1, below):
            below += 1
        if estimate < q.wait_s[d, below] or (estimate == q.wait_s[d, below] and place < q.wait[d, below]):
            break
        q.wait_s[d, i] = q.wait_s[d, below]
        q.wait[d, i] = q.wait[d, below]
        i = below
    q.wait_s[d, i] = estimate
    q.wait[d, i] = place


@helper
def _sooner(q: Queues, d: int, i: int, j: int) -> bool:
    a, b = q.wait_s[d, i], q.wait_s[d, j]
    return a < b or (a == b and q.wait[d, i] < q.wait[d, j])


@helper
def _push_free(q: Queues, d: int, place: int) -> None:
    i = q.freed[d]
    q.freed[d] += 1
    while i > 0 and q.free[d, (i - 1) // 2] > place:
        q.free[d, i] = q.free[d, (i - 1) // 2]
        i = (i - 1) // 2
    q.free[d, i] = place


@helper
def _pop_free(q: Queues, d: int) -> None:
    last = q.freed[d] - 1
    q.freed[d] = last
    place = q.free[d, last]
    i = 0
    while 2 * i + 1 < last:
        below = 2 * i + 1
        if below + 1 < last and q.free[d, below + 1] < q.free[d, below]:
            below += 1
        if place < q.free[d, below]:
            break
        q.free[d, i] = q.free[d, below]
        i = below
    q.free[d, i] = place
