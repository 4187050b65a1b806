"""The simulation kernel: docs/reference/simulator.md, event by event, on the flat arrays of `Program` and `Scratch`.

Compiled by numba and cached. Everything is in this one file because numba's cache does not see changes to functions of
other files; and there is one entry point, since each would be compiled with all the helpers. What keeps it quick:

- The options are `Flags`, which every helper is given. The default ones are constants (`by_address`), so that branches
  of all others are not there in the machine code; whether there is a limit or a record is looked at in every step.
- Helpers are inlined wherever they are called; left to LLVM, a step takes a tenth longer.
- In "fifo" order a device's ready queue needs no heap. Time only grows, so an op that becomes ready goes to the end of
  the queue, before at most the ops that became ready at the same instant and have a higher index.
- A transfer that has to wait starts exactly when one requested before it ends, so it hangs on that one's list until
  then. The heap of events holds only the transfers under way.
- Changes of one instant take effect together, so memory is summed in any order and looked at when time moves on.
"""

# Helpers take plain arguments, which stay in registers once they are inlined; a record's fields are of type Any.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.by_address import ByAddress
from tfplace.core.kernels import helper, inlined, kernel
from tfplace.core.stepcost import FAILED_BYTES
from tfplace.simulation.options import ORDERS, OVERHEAD_ORDERS, PHASE_ORDERS, Options
from tfplace.simulation.phases import GROUPS
from tfplace.simulation.program import Program, Scratch

SENT, HEAP, CHANGES, MOVED, ABORTED, TOUCHED, WIRED = range(7)
FIFO, LIFO, INLINE, RANKED = range(4)
FIRST, IN_TURN, PREEMPT = range(len(OVERHEAD_ORDERS))
FREE, BY_USE, GPIPE, ONE_F_ONE_B, GIVEN = range(len(PHASE_ORDERS))
"""Given phases are in `Scratch.phase`: those of a placement, or of the critical path."""
NO_WORK = -1
AHEAD = GROUPS // 3
"""Stretches of the forward pass by which variables are read before they are used."""
STRAY = 0.05
"""Part of the seconds of a slice's pass below which a device is no stage of it: what it has of it runs at any time."""


class Flags(NamedTuple):
    """Options as the kernel reads them.

    Attributes:
      order: FIFO, LIFO, INLINE or RANKED, by `Program.rank`.
      work: FIRST, IN_TURN, PREEMPT; or NO_WORK if transfers occupy no device.
      parallel: ops a device runs at once.
      host: whether there are copies between host and device memory.
      phase_orders: bits of the orders of phases that are tried.
      limited: whether to give up when the limit is passed; needs `Program.rest`.
      record: whether to write down when everything happens.
    """

    order: int
    work: int
    parallel: int
    host: bool
    phase_orders: int
    limited: bool
    record: bool


class Batch(NamedTuple):
    """Placements and their keys.

    Attributes:
      units: [B, U] devices.
      over: [B] bytes over the limits, summed over devices.
      step_s: [B] step seconds.
    """

    units: IntArray
    over: LongArray
    step_s: FloatArray


PLAIN = Flags(FIFO, NO_WORK, 1, False, 1 << FREE, False, False)
WORKING = Flags(FIFO, IN_TURN, 1, False, 1 << FREE, False, False)
"""The default options, with overheads. Written out, since numba's cache would not see a change of the options' file."""

_FIXED = ("order", "work", "parallel", "host")
"""Options for whose default values there is machine code of its own. The others are looked at in every step."""


def make_flags(p: Program, options: Options) -> Flags:
    """The flags of some options; what would make no difference to the program is left off."""
    works = options.overheads and any(
        p.links[name].any() for name in ("send_s", "send_s_per_byte", "receive_s", "receive_s_per_byte")
    )
    return Flags(
        min(ORDERS.index(options.order), RANKED),
        OVERHEAD_ORDERS.index(options.overhead_order) if works else NO_WORK,
        options.parallel,
        options.host_copies and bool(p.crosses.any()) and bool((p.host >= 0).any()),
        sum(1 << PHASE_ORDERS.index(name) for name in set(options.phase_orders)) if p.part.max(initial=-1) >= 0 else 1,
        limited=False,
        record=False,
    )


def by_address(flags: Flags) -> ByAddress[Flags]:
    """As the kernel takes them."""
    fixed = flags._replace(phase_orders=1 << FREE, limited=False, record=False) in {PLAIN, WORKING}
    return ByAddress(flags, _FIXED if fixed else ())


def slots_of(flags: Flags) -> int:
    """Tasks a device can have at once: its ops, and in PREEMPT the work that interrupts them."""
    return flags.parallel + (flags.work == PREEMPT)


# ---- the entry point ------------------------------------------------------------------------------------------------


@kernel
def simulate(
    p: Program, s: Scratch, o: Flags, units: IntArray, over: LongArray, step_s: FloatArray, limit_s: float, first: int,
    end: int,
) -> float:  # fmt: skip
    """Simulates one step of some placements, or of the one whose devices are in the scratch.

    Args:
      p: the compiled problem.
      s: overwritten; afterwards it tells everything of the last step, if that is recorded.
      o: the rules.
      units: see `Batch`.
      over: where keys go.
      step_s: where keys go.
      limit_s: steps longer than that are given up if the flags say so: their key is (FAILED_BYTES, infinite).
      first: of the placements to simulate.
      end: where they end. If there are none, the step is that of the devices in `s.device`.

    Returns:
      Seconds of the last step.
    """
    b = first
    while True:
        if first < end:
            _spread(p, s, units, b)
        best_over = FAILED_BYTES
        best_s = np.inf
        s.chosen[1] = -1
        for order in range(GIVEN + 1):
            if not (o.phase_orders >> order) & 1:
                continue
            chained = order == GIVEN or (order != FREE and _find_phases(p, s, order))
            if order != FREE and not chained and o.phase_orders & 1:
                continue  # it would be the same as without
            s.chosen[0] = order if chained else FREE
            limit = min(limit_s, best_s) if best_over == 0 else limit_s
            seconds = _simulate(p, s, o, limit)
            ended = seconds <= limit_s and seconds < np.inf  # phases in which ops wait for one another never do
            exceeds = _excess(p, s) if ended else FAILED_BYTES
            if s.chosen[1] < 0 or exceeds < best_over or (exceeds == best_over and seconds < best_s):
                s.chosen[1] = s.chosen[0]
                best_over = exceeds
                best_s = seconds
        if first < end:
            step_s[b] = best_s if best_s <= limit_s else np.inf
            over[b] = best_over if best_s <= limit_s else FAILED_BYTES
        b += 1
        if b >= end:
            return best_s


@inlined
def _spread(p: Program, s: Scratch, units: IntArray, b: int) -> None:
    """Writes the device of every op, given that of every unit, into the scratch."""
    for v in range(len(s.device)):
        unit = p.ops[v].unit
        s.device[v] = units[b, unit] if unit >= 0 else 0


@inlined
def _excess(p: Program, s: Scratch) -> int:
    """Bytes over the limits, summed over devices."""
    total = 0
    for d in range(len(p.limit)):
        total += max(s.devices[d].peak - p.limit[d], 0)
    return total


# ---- phases ----------------------------------------------------------------------------------------------------------


@helper
def _find_phases(p: Program, s: Scratch, order: int) -> bool:
    """Numbers each device's phases and finds those of all ops; False if it would make no difference."""
    slices = s.place.shape[1]
    several = _find_stages(p, s)
    if order != BY_USE and not several:
        return False
    for d in range(s.turn.shape[0]):
        for q in range(2 * slices):
            s.turn[d, q] = -1
        first = -1
        for k in range(slices):
            if first < 0 and s.load[d, 2 * k] > 0:
                first = k
        if first < 0:
            continue
        s.turn[d, 2 * first] = 0  # in stretches
        if order != BY_USE:
            _take_turns(s, order, d, first)
    for v in range(len(s.device)):
        s.phase[v] = -1
        if p.ops[v].reads < 0:
            continue
        d = s.device[v]
        part = p.part[v]
        if part >= 0:
            s.phase[v] = s.turn[d, part]
            if s.phase[v] == 0:
                s.phase[v] = p.group[v]
        elif p.group[v] >= 0 and _has_stretches(s, d):
            s.phase[v] = max(p.group[v] - AHEAD, 0)
    return True


@helper
def _find_stages(p: Program, s: Scratch) -> bool:
    """Seconds and place of what each device has of each pass, nothing for strays; whether one has several slices."""
    slices = s.place.shape[1]
    s.load[:] = 0.0
    s.place[:] = 0.0
    for v in range(len(s.device)):
        part = p.part[v]
        if part >= 0:
            d = s.device[v]
            s.load[d, part] += p.seconds[v, d]
            if part % 2 == 0:
                s.place[d, part // 2] += p.seconds[v, d] * p.group[v]
    for q in range(2 * slices):
        total = 0.0
        for d in range(s.load.shape[0]):
            total += s.load[d, q]
        for d in range(s.load.shape[0]):
            if q % 2 == 0 and s.load[d, q] > 0:
                s.place[d, q // 2] /= s.load[d, q]
            if s.load[d, q] < STRAY * total:
                s.load[d, q] = 0.0
    for d in range(s.load.shape[0]):
        count = 0
        for k in range(slices):
            count += s.load[d, 2 * k] > 0 or s.load[d, 2 * k + 1] > 0
        if count > 1:
            return True
    return False


@helper
def _take_turns(s: Scratch, order: int, d: int, first: int) -> None:
    """Numbers the phases of a device after its first forward pass."""
    slices = s.place.shape[1]
    ahead = slices
    if order == ONE_F_ONE_B:
        ahead = 1
        for k in range(slices):
            stages = 0
            if s.load[d, 2 * k] > 0:
                for e in range(s.load.shape[0]):
                    later = s.place[e, k] > s.place[d, k] or (s.place[e, k] == s.place[d, k] and e >= d)
                    stages += s.load[e, 2 * k] > 0 and later
            ahead = max(ahead, stages)
    turn = GROUPS
    begun = 1
    k = first + 1
    back = 0
    while k < slices or back < slices:
        if k < slices and begun < ahead:
            if s.load[d, 2 * k] > 0:
                s.turn[d, 2 * k] = turn
                turn += 1
                begun += 1
            k += 1
            continue
        if back < slices:
            if s.load[d, 2 * back + 1] > 0:
                s.turn[d, 2 * back + 1] = turn
                turn += 1
                begun -= 1
            back += 1
        else:
            begun -= 1


@helper
def _has_stretches(s: Scratch, d: int) -> bool:
    """Whether the first forward pass on the device is in stretches."""
    first = 0
    for k in range(s.place.shape[1]):
        first += s.turn[d, 2 * k] == 0
    return first > 0


@inlined
def _waits(s: Scratch, v: int) -> bool:
    """Whether the op's phase has not come yet."""
    return s.chosen[0] != FREE and s.phase[v] > s.devices[s.device[v]].phase


@inlined
def _park(s: Scratch, v: int) -> None:
    """Has a ready op wait for its phase."""
    d = s.device[v]
    s.next_op[v] = s.parked[d, s.phase[v]]
    s.parked[d, s.phase[v]] = v


@helper
def _end_phases(p: Program, s: Scratch, o: Flags, d: int, cause: int, now: float) -> None:
    """Goes on to the first phase of the device that is not over, and starts what waits for it."""
    device = s.devices[d]
    while device.phase < s.pending.shape[1] and s.pending[d, device.phase] == 0:
        device.phase += 1
        if device.phase == s.pending.shape[1]:
            return
        v = s.parked[d, device.phase]
        while v >= 0:
            following = s.next_op[v]
            if o.record:
                s.cause[v] = cause
            _make_ready(p, s, o, v, now)
            v = following


@helper
def _stuck(s: Scratch) -> bool:
    """Whether ops wait for a phase that never ends, when nothing goes on any more."""
    if s.chosen[0] == FREE:
        return False
    waiting = 0
    for d in range(len(s.devices)):
        waiting += s.devices[d].phase < s.pending.shape[1]
    return waiting > 0


# ---- one step --------------------------------------------------------------------------------------------------------


@helper
def _simulate(p: Program, s: Scratch, o: Flags, limit_s: float) -> float:
    """Seconds of a step with the devices in `s.device`; infinite if given up. Rule 6 of "Time"."""
    # Bounds are sums of the same numbers in another order, so they may differ in the last digits.
    limit = limit_s * (1 + 1e-9)
    _reset(p, s, o, limit)
    now = 0.0
    q = 0
    while True:
        for i in range(s.counter[TOUCHED]):
            d = s.touched[i]
            _fill(p, s, o, d, now, limit)
            if o.parallel == 1 and o.work != PREEMPT and _sooner(s, d, q):
                q = d
        if o.limited and s.counter[ABORTED]:
            return np.inf
        if o.parallel > 1 or o.work == PREEMPT:
            q = _soonest(s)
        arrives = s.transfers[s.heap[0]].end if s.counter[HEAP] > 0 else np.inf
        then = min(s.slots[q].until, arrives)
        if then > now and o.parallel > 1:
            for i in range(s.counter[TOUCHED]):
                _share(s, o, s.touched[i], now)
            q = _soonest(s)
            then = min(s.slots[q].until, arrives)
        if then > now:
            _settle(s, o, now)
            if then == np.inf:
                return np.inf if _stuck(s) else now
            if o.limited and then > limit:
                return np.inf
            now = then
        while s.slots[q].until == now:
            _finish(p, s, o, q, now)
            q = _soonest(s)
        while s.counter[HEAP] > 0 and s.transfers[s.heap[0]].end == now:
            _arrive(p, s, o, _pop(s, o), now)


@inlined
def _reset(p: Program, s: Scratch, o: Flags, limit: float) -> None:
    s.refs[:] = 0
    s.counter[:] = 0
    for q in range(len(s.slots)):
        slot = s.slots[q]
        slot.task = -1
        slot.until = np.inf
        slot.front = -1
        slot.last = -1
    for c in range(len(s.channels)):
        s.channels[c].free = 0.0
    for d in range(len(s.devices)):
        _reset_device(s, d)
    for v in range(len(s.device)):
        op = p.ops[v]
        s.reads[v] = 0
        s.copied[v] = 0
        s.missing[v] = op.reads
        if op.reads >= 0:
            device = s.devices[s.device[v]]
            device.tail += 1
            device.in_use += op.persistent
            if o.limited:
                device.left += p.seconds[v, s.device[v]]
        elif o.record:
            s.start[v] = 0.0
            s.finish[v] = 0.0
        if o.record:
            s.cause[v] = -1
    if s.chosen[0] != FREE:
        s.pending[:] = 0
        s.parked[:] = -1
        for v in range(len(s.device)):
            if p.ops[v].reads >= 0 and s.phase[v] >= 0:
                s.pending[s.device[v], s.phase[v]] += 1
    begin = 0
    for d in range(len(s.devices)):
        device = s.devices[d]
        device.head = begin
        begin += device.tail
        device.tail = device.head
        if o.limited and device.left > limit:
            s.counter[ABORTED] = 1
        if s.chosen[0] != FREE:
            device.phase = 0
            _end_phases(p, s, o, d, -1, 0.0)
    last = len(s.device) - 1
    for i in range(len(s.device)):
        v = last - i if o.order == LIFO else i  # so that each finds its place at once
        if s.missing[v] == 0:
            if _waits(s, v):
                _park(s, v)
            else:
                _make_ready(p, s, o, v, 0.0)


@inlined
def _reset_device(s: Scratch, d: int) -> None:
    device = s.devices[d]
    device.touched = 0
    _touch(s, d)
    device.tail = 0
    device.front = -1
    device.back = -1
    device.work_head = -1
    device.tasks = 0
    device.active = 0
    device.in_use = 0
    device.shown = -1
    device.peak = 0
    device.transfer = 0.0
    device.compute = 0.0
    device.work = 0.0
    device.left = 0.0


@inlined
def _soonest(s: Scratch) -> int:
    """The slot whose task finishes next; of several that of the lowest op, works after ops."""
    found = 0
    for q in range(1, len(s.slots)):
        if _sooner(s, q, found):
            found = q
    return found


@inlined
def _sooner(s: Scratch, q: int, r: int) -> bool:
    a, b = s.slots[q], s.slots[r]
    return a.until < b.until or (a.until == b.until and a.task < b.task)


@inlined
def _touch(s: Scratch, d: int) -> None:
    """Something has changed for the device: it may start something, and its memory in use may be another."""
    if not s.devices[d].touched:
        s.devices[d].touched = 1
        s.touched[s.counter[TOUCHED]] = d
        s.counter[TOUCHED] += 1


@inlined
def _settle(s: Scratch, o: Flags, now: float) -> None:
    """The instant is over: what is in use now counts."""
    for i in range(s.counter[TOUCHED]):
        d = s.touched[i]
        device = s.devices[d]
        device.touched = 0
        if device.in_use == device.shown:
            continue
        device.shown = device.in_use
        device.peak = max(device.peak, device.in_use)
        if o.record:
            change = s.changes[s.counter[CHANGES]]
            change.when = now
            change.device = d
            change.in_use = device.in_use
            s.counter[CHANGES] += 1
    s.counter[TOUCHED] = 0


# ---- what a device does next -----------------------------------------------------------------------------------------


@inlined
def _fill(p: Program, s: Scratch, o: Flags, d: int, now: float, limit: float) -> None:
    """Starts what the device can start now. Rule 3 of "Time"."""
    base = d * (o.parallel + (o.work == PREEMPT))
    if o.work == PREEMPT:
        if s.slots[base + o.parallel].task < 0 and s.devices[d].work_head >= 0:
            _interrupt(p, s, o, d, base, now)
        if s.slots[base + o.parallel].task >= 0:
            return
    for q in range(base, base + o.parallel):
        if s.slots[q].task < 0:
            _start_next(p, s, o, d, q, now, limit)


@inlined
def _start_next(p: Program, s: Scratch, o: Flags, d: int, q: int, now: float, limit: float) -> None:
    v = _next_op(s, o, d, q)
    if o.work == FIRST or o.work == IN_TURN:  # noqa: PLR1714 (numba cuts branches of this form)
        x = s.devices[d].work_head
        if x >= 0 and (o.work == FIRST or v < 0 or s.transfers[x].asked <= s.ready[v]):
            _start_work(p, s, d, q, now)
            return
    if v >= 0:
        _take(p, s, o, d, q)
        _start(p, s, o, d, q, v, now, limit)


@inlined
def _start(p: Program, s: Scratch, o: Flags, d: int, q: int, v: int, now: float, limit: float) -> None:
    device = s.devices[d]
    seconds = p.seconds[v, d]
    slot = s.slots[q]
    if o.record and s.ready[v] < now:
        s.cause[v] = slot.last
    slot.task = v
    slot.until = now + seconds
    if o.parallel > 1:
        slot.share = 1
        device.tasks += 1
    if o.record:
        device.compute += seconds
        s.start[v] = now
    if o.limited:
        if now + device.left > limit or now + p.rest[v, d] > limit:
            s.counter[ABORTED] = 1
        device.left -= seconds
    device.in_use += p.workspace[v, d]
    if p.ops[v].writes:
        _write(p, s, d, v)
    for m in range(p.ops[v].first, p.ops[v + 1].first):
        message = p.messages[m]
        s.refs[m, d] = 1 + message.held  # the op itself, until it finishes
        alias = message.alias
        if alias < 0 and p.messages[m + 1].forward_first > message.forward_first:
            alias = _taken_over(p, s, m, d)
        s.alias[m] = alias
        if alias >= 0:
            s.refs[alias, d] += 1
            if message.read_of >= 0 and s.device[message.read_of] == d:
                s.reads[message.read_of] += 1
        else:
            device.in_use += message.size


@inlined
def _taken_over(p: Program, s: Scratch, m: int, d: int) -> int:
    """The first of the messages whose memory m may take over that nothing holds but the op that makes m; or -1."""
    for i in range(p.messages[m].forward_first, p.messages[m + 1].forward_first):
        offered: int = p.forward[i]
        held = offered
        while s.refs[held, d] == 1:
            if s.device[p.messages[held].maker] != d or s.alias[held] < 0:
                return offered
            held = s.alias[held]
    return -1


@inlined
def _write(p: Program, s: Scratch, d: int, v: int) -> None:
    """The op writes variables: one of which something that was read is still held gets new memory."""
    for i in range(p.ops[v].input_first, p.ops[v + 1].input_first):
        w = p.messages[p.input[i]].variable
        if w >= 0 and s.device[w] == d and s.reads[w] > 0 and not s.copied[w]:
            s.copied[w] = 1
            s.devices[d].in_use += p.ops[w].persistent


@inlined
def _share(s: Scratch, o: Flags, d: int, now: float) -> None:
    """Moves the end of tasks whose number on the device has changed: n at once run at 1/n of the speed."""
    base = d * (o.parallel + (o.work == PREEMPT))
    tasks = s.devices[d].tasks
    for q in range(base, base + o.parallel):
        slot = s.slots[q]
        if slot.task >= 0 and slot.share != tasks:
            slot.until = now + (slot.until - now) * tasks / slot.share
            slot.share = tasks


@inlined
def _finish(p: Program, s: Scratch, o: Flags, q: int, now: float) -> None:
    slot = s.slots[q]
    task = slot.task
    d = q // (o.parallel + (o.work == PREEMPT))
    slot.task = -1
    slot.until = np.inf
    slot.last = task
    _touch(s, d)
    if o.parallel > 1 and (o.work != PREEMPT or q - d * (o.parallel + 1) < o.parallel):
        s.devices[d].tasks -= 1
    if o.work == NO_WORK or task < len(s.device):
        _finish_op(p, s, o, q, d, task, now)
    else:
        _finish_work(p, s, o, d, task - len(s.device), now)


@inlined
def _finish_op(p: Program, s: Scratch, o: Flags, q: int, d: int, v: int, now: float) -> None:
    if o.record:
        s.finish[v] = now
    s.devices[d].in_use -= p.workspace[v, d]
    for i in range(p.ops[v].input_first, p.ops[v + 1].input_first):
        _release(p, s, p.input[i], d)
    kept = -1
    for m in range(p.ops[v].first, p.ops[v + 1].first):
        away = 0
        copies = 0
        for r in range(p.messages[m].reader_first, p.messages[m + 1].reader_first):
            reader = p.reader[r]
            to = s.device[reader]
            s.readers[to] += 1
            if to != d:
                if s.readers[to] == 1:
                    away = _note(s, to, away)
            elif o.host and p.crosses[r] and p.host[d] >= 0:
                copies += 1
            else:
                s.missing[reader] -= 1
                if s.missing[reader] == 0:
                    if o.record:
                        s.cause[reader] = v
                    if _waits(s, reader):
                        _park(s, reader)
                    elif o.order == INLINE:
                        kept = _hand_on(p, s, q, d, reader, kept, now)
                    else:
                        _make_ready(p, s, o, reader, now)
        s.refs[m, d] += s.readers[d]
        s.readers[d] = 0
        if o.host and copies:
            s.refs[m, d] += 1
            _request(p, s, o, m, d, now, True)
        s.refs[m, d] += away
        for i in range(away):
            to = s.away[i]
            s.refs[m, to] = s.readers[to]
            s.readers[to] = 0
            _request(p, s, o, m, to, now, False)
        _release(p, s, m, d)
    if o.order == INLINE and kept >= 0:
        if s.slots[q].front < 0:
            _keep(s, q, kept, now)
        else:
            _put_front(s, d, kept, now)
    if s.chosen[0] != FREE and s.phase[v] >= 0:
        s.pending[d, s.phase[v]] -= 1
        _end_phases(p, s, o, d, v, now)


@inlined
def _note(s: Scratch, to: int, away: int) -> int:
    """Adds a device to the sorted list of those that a message must be sent to; returns its new length."""
    i = away
    while i > 0 and s.away[i - 1] > to:
        s.away[i] = s.away[i - 1]
        i -= 1
    s.away[i] = to
    return away + 1


@inlined
def _release(p: Program, s: Scratch, m: int, d: int) -> None:
    """One holder less of the copy of message m on d; a freed alias lets go of what it stands for."""
    while True:
        s.refs[m, d] -= 1
        if s.refs[m, d] > 0:
            return
        message = p.messages[m]
        if s.device[message.maker] != d or s.alias[m] < 0:
            s.devices[d].in_use -= message.size
            return
        w = message.read_of
        if w >= 0 and s.device[w] == d:
            s.reads[w] -= 1
            if s.reads[w] == 0 and s.copied[w]:
                s.copied[w] = 0
                s.devices[d].in_use -= p.ops[w].persistent
        m = s.alias[m]


# ---- ready ops -------------------------------------------------------------------------------------------------------


@inlined
def _make_ready(p: Program, s: Scratch, o: Flags, v: int, now: float) -> None:
    d = s.device[v]
    _touch(s, d)
    if o.record or o.work == IN_TURN or o.order == LIFO:
        s.ready[v] = now
    if o.order == FIFO:
        _put_in_order(s, d, v, now)
    elif o.order == LIFO:
        _put_on_top(s, d, v, now)
    elif o.order == INLINE:
        _put_back(s, d, v)
    else:
        _put_by_rank(p, s, d, v)


@inlined
def _next_op(s: Scratch, o: Flags, d: int, q: int) -> int:
    """The op the slot would start next, or -1."""
    if o.order == FIFO or o.order == RANKED:  # noqa: PLR1714
        return s.queue[s.devices[d].head].op if s.devices[d].head < s.devices[d].tail else -1
    if o.order == INLINE and s.slots[q].front >= 0:
        return s.slots[q].front
    return s.devices[d].front


@inlined
def _take(p: Program, s: Scratch, o: Flags, d: int, q: int) -> None:
    """Removes the op that `_next_op` gave."""
    if o.order == FIFO:
        s.devices[d].head += 1
    elif o.order == RANKED:
        _drop_first_rank(p, s, d)
    elif o.order == INLINE and s.slots[q].front >= 0:
        s.slots[q].front = s.next_op[s.slots[q].front]
    else:
        s.devices[d].front = s.next_op[s.devices[d].front]


@inlined
def _put_in_order(s: Scratch, d: int, v: int, now: float) -> None:
    device = s.devices[d]
    i = device.tail
    while i > device.head and s.queue[i - 1].since == now and s.queue[i - 1].op > v:
        s.queue[i].op = s.queue[i - 1].op
        s.queue[i].since = now
        i -= 1
    s.queue[i].op = v
    s.queue[i].since = now
    device.tail += 1


@inlined
def _put_on_top(s: Scratch, d: int, v: int, now: float) -> None:
    """Before the ops that were ready earlier, but after those of the same instant with a lower index."""
    before = -1
    u = s.devices[d].front
    while u >= 0 and s.ready[u] == now and u < v:
        before = u
        u = s.next_op[u]
    s.next_op[v] = u
    if before < 0:
        s.devices[d].front = v
    else:
        s.next_op[before] = v


@inlined
def _put_front(s: Scratch, d: int, v: int, now: float) -> None:
    device = s.devices[d]
    s.ready[v] = now
    s.next_op[v] = device.front
    if device.front < 0:
        device.back = v
    device.front = v


@inlined
def _put_back(s: Scratch, d: int, v: int) -> None:
    device = s.devices[d]
    s.next_op[v] = -1
    if device.front < 0:
        device.front = v
    else:
        s.next_op[device.back] = v
    device.back = v


@inlined
def _keep(s: Scratch, q: int, v: int, now: float) -> None:
    """Puts the op at the end of what this slot runs before anything from the pool."""
    slot = s.slots[q]
    s.ready[v] = now
    s.next_op[v] = -1
    if slot.front < 0:
        slot.front = v
    else:
        s.next_op[slot.back] = v
    slot.back = v


@inlined
def _hand_on(p: Program, s: Scratch, q: int, d: int, v: int, kept: int, now: float) -> int:
    """What an executor does with an op that its own op made ready; returns the last expensive one, not yet put away."""
    if p.cheap[v, d]:
        _keep(s, q, v, now)
        return kept
    if kept >= 0:
        _put_front(s, d, kept, now)
    return v


@inlined
def _put_by_rank(p: Program, s: Scratch, d: int, v: int) -> None:
    device = s.devices[d]
    i = device.tail - device.head
    device.tail += 1
    while i > 0:
        parent = (i - 1) >> 1
        u = s.queue[device.head + parent].op
        if p.rank[u] < p.rank[v]:
            break
        s.queue[device.head + i].op = u
        i = parent
    s.queue[device.head + i].op = v


@inlined
def _drop_first_rank(p: Program, s: Scratch, d: int) -> None:
    device = s.devices[d]
    device.tail -= 1
    n = device.tail - device.head
    v = s.queue[device.tail].op
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        u = s.queue[device.head + child].op
        if child + 1 < n and p.rank[s.queue[device.head + child + 1].op] < p.rank[u]:
            child += 1
            u = s.queue[device.head + child].op
        if p.rank[v] < p.rank[u]:
            break
        s.queue[device.head + i].op = u
        i = child
    s.queue[device.head + i].op = v


# ---- transfers -------------------------------------------------------------------------------------------------------


@inlined
def _request(p: Program, s: Scratch, o: Flags, m: int, to: int, now: float, copy: bool) -> None:
    """Asks for message m to be sent to a device, or copied into the other memory of `to`, its own."""
    d = s.device[p.messages[m].maker]
    x = s.counter[SENT]
    s.counter[SENT] += 1
    if o.record:
        s.counter[MOVED] += p.messages[m].moved
    transfer = s.transfers[x]
    transfer.message = m
    transfer.src = d
    transfer.dst = to
    if o.host:
        transfer.copy = copy
        if copy and not p.messages[m].host:
            transfer.dst = p.host[d]
        elif copy:
            transfer.src = p.host[d]
    if o.work != NO_WORK and not (o.host and copy) and _work_seconds(p, s, x, d) > 0:
        _ask_for_work(s, d, x, now)
    else:
        _transmit(p, s, o, x, now)


@inlined
def _transmit(p: Program, s: Scratch, o: Flags, x: int, now: float) -> None:
    """Puts the transfer on its channels, after all that were put there before."""
    transfer = s.transfers[x]
    message = p.messages[transfer.message]
    link = p.links[transfer.src, transfer.dst]
    begin = now
    blocker = -1
    for k in range(p.channels.shape[2]):
        channel = p.channels[transfer.src, transfer.dst, k]
        if channel >= 0 and s.channels[channel].free > begin:
            begin = s.channels[channel].free
            blocker = s.channels[channel].last
    end = begin + (p.ops[message.maker].trips * link.latency + message.volume / link.bandwidth)
    transfer.start = begin
    transfer.end = end
    transfer.blocks = -1
    if o.record:
        s.behind[x] = blocker
    if o.work != NO_WORK:  # else it is the order of requests
        transfer.order = s.counter[WIRED]
        s.counter[WIRED] += 1
    for k in range(p.channels.shape[2]):
        channel = p.channels[transfer.src, transfer.dst, k]
        if channel >= 0:
            s.channels[channel].free = end
            s.channels[channel].last = x
    if blocker < 0:
        _depart(p, s, o, x, now)
    else:
        transfer.after = s.transfers[blocker].blocks
        s.transfers[blocker].blocks = x


@inlined
def _depart(p: Program, s: Scratch, o: Flags, x: int, now: float) -> None:
    transfer = s.transfers[x]
    if not (o.host and transfer.copy):
        s.devices[transfer.dst].in_use += p.messages[transfer.message].size
    _touch(s, transfer.dst)
    if o.record:
        for d in (transfer.src, transfer.dst):
            if s.devices[d].active == 0:
                s.devices[d].since = now
            s.devices[d].active += 1
    _push(s, o, x)


@inlined
def _arrive(p: Program, s: Scratch, o: Flags, x: int, now: float) -> None:
    transfer = s.transfers[x]
    if o.record:
        for d in (transfer.src, transfer.dst):
            device = s.devices[d]
            device.active -= 1
            if device.active == 0:
                device.transfer += now - device.since
    waiting = transfer.blocks
    while waiting >= 0:
        _depart(p, s, o, waiting, now)
        waiting = s.transfers[waiting].after
    if o.work != NO_WORK and not (o.host and transfer.copy) and _work_seconds(p, s, x, transfer.dst) > 0:
        _ask_for_work(s, transfer.dst, x, now)
    else:
        _deliver(p, s, o, x, now)
    home = s.device[p.messages[transfer.message].maker]
    _touch(s, home)
    _release(p, s, transfer.message, home)


@inlined
def _deliver(p: Program, s: Scratch, o: Flags, x: int, now: float) -> None:
    """The message is available to its readers there."""
    m = s.transfers[x].message
    copy = o.host and s.transfers[x].copy
    to = s.device[p.messages[m].maker] if copy else s.transfers[x].dst
    for r in range(p.messages[m].reader_first, p.messages[m + 1].reader_first):
        reader = p.reader[r]
        if s.device[reader] == to and (not copy or p.crosses[r]):
            s.missing[reader] -= 1
            if s.missing[reader] == 0:
                if o.record:
                    s.cause[reader] = len(s.device) + x
                if _waits(s, reader):
                    _park(s, reader)
                else:
                    _make_ready(p, s, o, reader, now)


# ---- work that transfers make ----------------------------------------------------------------------------------------


@inlined
def _work_seconds(p: Program, s: Scratch, x: int, d: int) -> float:
    """Seconds for which the transfer occupies one of its ends."""
    transfer = s.transfers[x]
    message = p.messages[transfer.message]
    link = p.links[transfer.src, transfer.dst]
    trips = p.ops[message.maker].trips
    if d == transfer.src:
        return trips * link.send_s + message.volume * link.send_s_per_byte
    return trips * link.receive_s + message.volume * link.receive_s_per_byte


@inlined
def _ask_for_work(s: Scratch, d: int, x: int, now: float) -> None:
    _touch(s, d)
    device = s.devices[d]
    s.transfers[x].asked = now
    s.transfers[x].next = -1
    if device.work_head < 0:
        device.work_head = x
    else:
        s.transfers[device.work_tail].next = x
    device.work_tail = x


@inlined
def _start_work(p: Program, s: Scratch, d: int, q: int, now: float) -> float:
    device = s.devices[d]
    x = device.work_head
    device.work_head = s.transfers[x].next
    device.tasks += 1
    seconds = _work_seconds(p, s, x, d)
    device.work += seconds
    slot = s.slots[q]
    slot.task = len(s.device) + x
    slot.until = now + seconds
    slot.share = 1
    return seconds


@inlined
def _interrupt(p: Program, s: Scratch, o: Flags, d: int, base: int, now: float) -> None:
    """Work starts at once, and all that runs on the device waits for it."""
    if o.parallel > 1:
        _share(s, o, d, now)
    seconds = _start_work(p, s, d, base + o.parallel, now)
    s.devices[d].tasks -= 1  # it shares with nobody
    for q in range(base, base + o.parallel):
        s.slots[q].until += seconds


@inlined
def _finish_work(p: Program, s: Scratch, o: Flags, d: int, x: int, now: float) -> None:
    if d == s.transfers[x].src:
        _transmit(p, s, o, x, now)
    else:
        _deliver(p, s, o, x, now)


# ---- the heap of transfers under way ---------------------------------------------------------------------------------


@inlined
def _earlier(s: Scratch, o: Flags, x: int, y: int) -> bool:
    a, b = s.transfers[x], s.transfers[y]
    if a.end != b.end:
        return a.end < b.end
    return x < y if o.work == NO_WORK else a.order < b.order


@inlined
def _push(s: Scratch, o: Flags, x: int) -> None:
    i = s.counter[HEAP]
    s.counter[HEAP] += 1
    while i > 0:
        parent = (i - 1) >> 1
        if not _earlier(s, o, x, s.heap[parent]):
            break
        s.heap[i] = s.heap[parent]
        i = parent
    s.heap[i] = x


@inlined
def _pop(s: Scratch, o: Flags) -> int:
    top: int = s.heap[0]
    s.counter[HEAP] -= 1
    n = s.counter[HEAP]
    x = s.heap[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _earlier(s, o, s.heap[child + 1], s.heap[child]):
            child += 1
        if not _earlier(s, o, s.heap[child], x):
            break
        s.heap[i] = s.heap[child]
        i = child
    s.heap[i] = x
    return top
