"""What can be told of a move without simulating it; compiled, since several are looked at for one that is tried."""

# Kernels take plain arguments, of which there are many; a NamedTuple's fields are of type Any once compiled.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return, untyped-decorator"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.kernels import allocating_helper, allocating_kernel, helper, kernel
from tfplace.local_search.move_kernel import MoveState


class Feature(IntEnum):
    """What is told of a move, by its place in a row.

    Seconds are in step times. Loads are seconds of ops on a device; the target and the source are the devices that gain
    and lose most. An edge waits from its producer's end to its consumer's start in the last known schedule.
    """

    LOG_UNITS = 0
    """Logarithm of the units."""
    SECONDS = 1
    """Their seconds where they go."""
    TARGET_LOAD = 2
    """The target's load after it."""
    LARGEST_LOAD = 3
    """The largest load after it."""
    SOURCE_LOAD = 4
    """The source's load before it."""
    LARGEST_LOAD_GROWTH = 5
    """What the largest load grows by."""
    TRANSFER_GROWTH = 6
    """What transfers grow by."""
    TRANSFERS_BEFORE = 7
    """Transfers before it."""
    TRANSFERS_AFTER = 8
    """Transfers after it."""
    CRITICAL = 9
    """Seconds on the critical path."""
    SPAN = 10
    """Time from the first unit's start to the last's end."""
    TARGET_BUSY = 11
    """How much of that the target is busy."""
    SOURCE_BUSY = 12
    """How much of that the source is busy."""
    TARGET_SLACK = 13
    """What the target is idle in it, less their seconds."""
    LATE = 14
    """What comes later than it can wait."""
    LATEST = 15
    """The most of one edge."""
    EARLY = 16
    """What came later than it could wait, and is sent no more."""
    EARLIEST = 17
    """The most of one edge, of these."""
    READ_AT_TARGET = 18
    """Part of the bytes read that are made at the target."""
    MADE_AT_TARGET = 19
    """Part of the bytes made that are read at the target."""
    SOURCES = 20
    """Devices they come from."""
    EDGES_CUT = 21
    """Edges that are cut by it."""
    CRITICAL_PART = 22
    """Part of their seconds that is on the critical path."""
    CUTS_BEFORE = 23
    """Cut edges before it."""
    CUTS_AFTER = 24
    """Cut edges after it."""
    DONE = 25
    """Part of the cycle that is over."""


_SUMS = 13
_BEFORE, _AFTER, _LATE, _LATEST, _EARLY, _EARLIEST, _CUT, _CUTS_BEFORE, _CUTS_AFTER = range(9)
_READ, _READ_FROM, _MADE, _MADE_FOR = range(9, _SUMS)


class Edges(NamedTuple):
    """What a unit makes that another one reads, [E], by producer.

    Attributes:
      out_first: [U + 1] where each producer's begin.
      reader: [E].
      size: [E] bytes of a step.
      trips: [E] messages of a step.
      in_first: [U + 1] where each reader's begin in the next.
      by_reader: [E] edges by reader.
      maker: [E].
    """

    out_first: LongArray
    reader: IntArray
    size: FloatArray
    trips: FloatArray
    in_first: LongArray
    by_reader: LongArray
    maker: IntArray


class Seconds(NamedTuple):
    """What things take.

    Attributes:
      unit: [U, D] of a step; 0 where it may not be.
      message: [D, D] of each.
      byte: [D, D].
    """

    unit: FloatArray
    message: FloatArray
    byte: FloatArray


class Schedule(NamedTuple):
    """One step.

    Attributes:
      start: [U] seconds to the start of each unit's first op.
      finish: [U] to the end of its last.
      critical: [U] seconds of the critical path that it computes.
      busy: [D, T + 1] seconds for which each device computes in all parts of the step before this one, of T alike.
      step_s: its length.
    """

    start: FloatArray
    finish: FloatArray
    critical: FloatArray
    busy: FloatArray
    step_s: float


class Workspace(NamedTuple):
    """Room to work in.

    Attributes:
      moved: [U] none, between two calls.
      to: [U].
    """

    moved: BoolArray
    to: IntArray


@kernel
def fill_busy(
    start: FloatArray, finish: FloatArray, unit_s: FloatArray, devices: IntArray, step_s: float, busy: FloatArray
) -> None:
    """Writes `Schedule.busy`: each unit's seconds are spread evenly from its start to its finish."""
    parts = busy.shape[1] - 1
    busy[:] = 0.0
    for u in range(len(devices)):
        took = unit_s[u, devices[u]]
        begin, end = start[u] / step_s * parts, finish[u] / step_s * parts
        first, last = min(int(begin), parts - 1), min(int(end), parts - 1)
        if first == last:
            busy[devices[u], first + 1] += took
        else:
            for i in range(first, last + 1):
                within = max(min(end, i + 1.0) - max(begin, float(i)), 0.0)
                busy[devices[u], i + 1] += took * within / (end - begin)
    for d in range(len(busy)):
        for i in range(parts):
            busy[d, i + 1] += busy[d, i]


@allocating_kernel
def look(
    edges: Edges, seconds: Seconds, schedule: Schedule, marks: Workspace, now: MoveState, load: FloatArray, done: float,
    out: FloatArray,
) -> None:  # fmt: skip
    """Writes the features of the first moves of a placement.

    Args:
      edges: the problem's.
      seconds: the problem's.
      schedule: of this placement, or of one a few moves before.
      marks: room.
      now: the placement, and moves; units that are there already count for nothing.
      load: [D] the placement's loads.
      done: part of the cycle that is over.
      out: [N, F] see `Feature`.
    """
    for row in range(len(out)):
        size = now.size[row]
        units, targets = now.unit[row, :size], now.device[row, :size]
        _look(edges, seconds, schedule, marks, now.devices, load, units, targets, out[row])
        out[row, Feature.DONE] = done


@allocating_helper
def _look(
    edges: Edges, seconds: Seconds, schedule: Schedule, marks: Workspace, devices: IntArray, load: FloatArray,
    units: IntArray, targets: IntArray, out: FloatArray,
) -> None:  # fmt: skip
    step_s = schedule.step_s
    loads, gained, lost = load.copy(), np.zeros(len(load)), np.zeros(len(load))
    count, critical, took, left = 0, 0.0, 0.0, 0.0
    begin, end = step_s, 0.0
    for i in range(len(units)):
        u, a, b = units[i], devices[units[i]], targets[i]
        if a == b:
            continue
        marks.moved[u], marks.to[u] = True, b
        count += 1
        critical += schedule.critical[u]
        took += seconds.unit[u, b]
        left += seconds.unit[u, a]
        gained[b] += seconds.unit[u, b]
        lost[a] += seconds.unit[u, a]
        begin, end = min(begin, schedule.start[u]), max(end, schedule.finish[u])
    target, source, sources = targets[0], 0, 0
    for d in range(len(load)):
        loads[d] += gained[d] - lost[d]
        target = d if gained[d] > gained[target] else target
        source = d if lost[d] > lost[source] else source
        sources += lost[d] > 0
    sums = np.zeros(_SUMS)
    # arrays of their own, and one that is passed on: counting who has which would take most of the time
    moved, to, start, finish = marks.moved, marks.to, schedule.start, schedule.finish
    size, trips, message, byte = edges.size, edges.trips, seconds.message, seconds.byte
    out_first, reader, in_first = edges.out_first, edges.reader, edges.in_first
    by_reader, maker = edges.by_reader, edges.maker
    for i in range(len(units)):
        u = units[i]
        if not moved[u]:
            continue
        a, b = devices[u], to[u]
        for e in range(out_first[u], out_first[u + 1]):
            v = reader[e]
            was = devices[v]
            now = to[v] if moved[v] else was
            before = trips[e] * message[a, was] + size[e] * byte[a, was] if a != was else 0.0
            after = trips[e] * message[b, now] + size[e] * byte[b, now] if b != now else 0.0
            _edge(before, after, max(start[v] - finish[u], 0.0), a != was, b != now, sums)
            if not moved[v]:
                sums[_MADE] += size[e]
                sums[_MADE_FOR] += size[e] if was == target else 0.0
        for k in range(in_first[u], in_first[u + 1]):
            e = by_reader[k]
            v = maker[e]
            if not moved[v]:
                was = devices[v]
                before = trips[e] * message[was, a] + size[e] * byte[was, a] if a != was else 0.0
                after = trips[e] * message[was, b] + size[e] * byte[was, b] if b != was else 0.0
                _edge(before, after, max(start[u] - finish[v], 0.0), a != was, b != was, sums)
                sums[_READ] += size[e]
                sums[_READ_FROM] += size[e] if was == target else 0.0
    for i in range(len(units)):
        marks.moved[units[i]] = False
    parts = schedule.busy.shape[1] - 1
    first = min(int(begin / step_s * parts), parts - 1)
    last = max(min(int(end / step_s * parts) + 1, parts), first + 1)
    span = (last - first) / parts * step_s
    busy = schedule.busy[target, last] - schedule.busy[target, first]
    out[Feature.LOG_UNITS] = np.log(max(count, 1))
    out[Feature.SECONDS] = took / step_s
    out[Feature.TARGET_LOAD] = loads[target] / step_s
    out[Feature.LARGEST_LOAD] = loads.max() / step_s
    out[Feature.SOURCE_LOAD] = load[source] / step_s
    out[Feature.LARGEST_LOAD_GROWTH] = (loads.max() - load.max()) / step_s
    out[Feature.TRANSFER_GROWTH] = (sums[_AFTER] - sums[_BEFORE]) / step_s
    out[Feature.TRANSFERS_BEFORE] = sums[_BEFORE] / step_s
    out[Feature.TRANSFERS_AFTER] = sums[_AFTER] / step_s
    out[Feature.CRITICAL] = critical / step_s
    out[Feature.SPAN] = span / step_s
    out[Feature.TARGET_BUSY] = busy / span
    out[Feature.SOURCE_BUSY] = (schedule.busy[source, last] - schedule.busy[source, first]) / span
    out[Feature.TARGET_SLACK] = (span - busy - took) / step_s
    out[Feature.LATE] = sums[_LATE] / step_s
    out[Feature.LATEST] = sums[_LATEST] / step_s
    out[Feature.EARLY] = sums[_EARLY] / step_s
    out[Feature.EARLIEST] = sums[_EARLIEST] / step_s
    out[Feature.READ_AT_TARGET] = sums[_READ_FROM] / max(sums[_READ], 1.0)
    out[Feature.MADE_AT_TARGET] = sums[_MADE_FOR] / max(sums[_MADE], 1.0)
    out[Feature.SOURCES] = sources
    out[Feature.EDGES_CUT] = sums[_CUT]
    out[Feature.CRITICAL_PART] = critical / max(left, 1e-12)
    out[Feature.CUTS_BEFORE] = sums[_CUTS_BEFORE]
    out[Feature.CUTS_AFTER] = sums[_CUTS_AFTER]


@helper
def _edge(before: float, after: float, slack: float, was_cut: bool, is_cut: bool, sums: FloatArray) -> None:
    """Adds what becomes of an edge: seconds of its transfer before and after, and for how long its data can wait."""
    sums[_CUTS_BEFORE] += was_cut
    sums[_CUTS_AFTER] += is_cut
    sums[_CUT] += is_cut and not was_cut
    sums[_BEFORE] += before
    sums[_AFTER] += after
    late = after - before - slack
    if late > 0:
        sums[_LATE] += late
        sums[_LATEST] = max(sums[_LATEST], late)
    if not is_cut and before > slack:
        sums[_EARLY] += before - slack
        sums[_EARLIEST] = max(sums[_EARLIEST], before - slack)
