"""Draws moves; compiled, since a search draws one for every placement it evaluates."""

# Kernels take plain arguments, of which there are many; a NamedTuple's fields are of type Any once compiled.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.np.random.distributions import random_standard_normal
from numba.np.random.generator_core import next_double, next_uint32
from numpy.typing import NDArray

from tfplace.core.arrays import BoolArray, IntArray, LongArray
from tfplace.core.kernels import allocating_helper, allocating_kernel, helper

_ANY_DEVICE = 0.02
_SPREAD = 0.3
_IDLE_DRAWS = 10_000
_WORD = 1 << 32

CLUSTER, SWAP, BORDER, ACROSS, SET, CRITICAL = range(6)
"""Kinds of moves; see `tfplace.local_search.moves`."""


class Levels(NamedTuple):
    """The same units in sets, on several levels.

    Attributes:
      label: [L, U] set of each unit.
      begin: [L + 1] where each level's sets begin in `first`, one more than sets each.
      first: where each set's units begin in its level's members.
      member: [L, U] units, set by set.
    """

    label: IntArray
    begin: LongArray
    first: LongArray
    member: IntArray


class Lists(NamedTuple):
    """A list of numbers for each of some rows: [N + 1] where each begins, and the numbers."""

    first: LongArray
    value: IntArray


class Neighborhoods(NamedTuple):
    """What moves are made of.

    Attributes:
      clusters: from single units to the coarsest; see `tfplace.group.vicinity`.
      sets: scopes, and producers with their only consumers.
      place: [U] of each unit in the order in which sets have their units.
      near: units each unit shares an edge with.
      src: [F] unit that produces, for each edge between two units.
      dst: [F] unit that reads.
      may: [U, D] where units may be.
      kind: [U] row of the next two.
      allowed: devices where each unit may be.
      usual: those of them that work is spread over, or else all.
    """

    clusters: Levels
    sets: Levels
    place: LongArray
    near: Lists
    src: IntArray
    dst: IntArray
    may: BoolArray
    kind: LongArray
    allowed: Lists
    usual: Lists


class Path(NamedTuple):
    """A critical path.

    Attributes:
      unit: [N, 2] what computes, and -1; or both ends of a transfer.
      until: [N] seconds to the end of each part.
    """

    unit: IntArray
    until: NDArray[np.float64]


class MoveState(NamedTuple):
    """A placement, what is worked out for it, and moves of it.

    Attributes:
      devices: [U].
      cut: [F] edges between two devices, first some of them.
      cuts: [1] how many, or -1 before that is known.
      seen: [U] no unit, between two draws.
      unit: [B, U] units of moves that were drawn.
      device: [B, U] where they go.
      size: [B] how many.
    """

    devices: IntArray
    cut: LongArray
    cuts: LongArray
    seen: BoolArray
    unit: IntArray
    device: IntArray
    size: LongArray


def levels(labels: Sequence[IntArray], sets: Sequence[Sequence[IntArray]], units: int) -> Levels:
    """Of labels and the units of each set."""
    firsts = [np.concatenate([[0], np.cumsum([len(s) for s in level])]) for level in sets]
    begin = np.concatenate([[0], np.cumsum([len(first) for first in firsts])])
    return Levels(
        np.array(labels, np.int32).reshape(len(labels), units),
        begin.astype(np.int64),
        np.concatenate([np.zeros(0), *firsts]).astype(np.int64),
        np.array([np.concatenate(level) for level in sets], np.int32).reshape(len(labels), units),
    )


def lists(rows: Sequence[Sequence[int]]) -> Lists:
    """Of rows."""
    first = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Lists(first.astype(np.int64), np.array([v for row in rows for v in row], np.int32))


@allocating_kernel
def draw(
    of: Neighborhoods, path: Path, now: MoveState, rng: Any, done: float, critical: float, so_far: tuple[int, int, int],
    stale: bool, asked: bool,
) -> tuple[int, int, int, bool]:  # fmt: skip
    """Draws moves that change something, until there are as many as `now` has room for or many draws found none.

    Args:
      of: the problem's.
      path: of the placement, or of one a few moves before.
      now: the placement, and where moves go.
      rng: random generator.
      done: part of a cycle that is over.
      critical: how often moves are to be of the critical path.
      so_far: moves and draws up to now, and for how many draws the path is good yet.
      stale: whether it is that of another placement; else it is good for ever.
      asked: whether it has been asked for, as the last call wanted.

    Returns:
      What `so_far` is then, and whether the path has to be asked for before it goes on.
    """
    kinds = 5 if len(of.sets.label) else 4
    count, draws, good = so_far
    while count < len(now.size) and draws < _IDLE_DRAWS:
        taken = asked or _part(rng) < critical
        if taken and not asked:
            if stale and good <= 0:
                return count, draws, good, True
            good -= 1
        asked = False
        one(of, path, now, rng, done, CRITICAL if taken and len(path.unit) else _below(rng, kinds), count)
        draws += 1
        if _changes(of, now, count):
            count += 1
    return count, draws, good, False


@allocating_helper
def one(of: Neighborhoods, path: Path, now: MoveState, rng: Any, done: float, kind: int, row: int) -> None:
    """Draws a move of a kind: its units, none if the draw found none, and where they go, in a row of `now`."""
    now.size[row] = 0
    if kind == CRITICAL:
        _critical(of, path, now, rng, done, row)
    elif kind == CLUSTER:
        level = _level(of, rng, done)
        cluster = _below(rng, _sets(of.clusters, level))
        first, last = _span(of.clusters, level, cluster)
        inside = of.clusters.member[level, first + _below(rng, last - first)]
        _whole(of, now, row, level, cluster, _elsewhere(of, now, rng, inside))
    elif kind == SWAP:
        _swap(of, now, rng, done, row)
    elif kind == SET:
        unit = _below(rng, len(now.devices))
        _of_set(of, now, rng, row, unit, _elsewhere(of, now, rng, unit))
    else:
        unit, device = _at_border(of, now, rng)
        if unit >= 0 and kind == BORDER:
            _region(of, now, rng, done, row, unit, device)
        elif unit >= 0:
            level = _level(of, rng, done)
            _whole(of, now, row, level, of.clusters.label[level, unit], device)


@allocating_helper
def _critical(of: Neighborhoods, path: Path, now: MoveState, rng: Any, done: float, row: int) -> None:
    at = _after(path.until, _part(rng) * path.until[len(path.until) - 1])
    unit, other = path.unit[at, 0], path.unit[at, 1]
    if other >= 0 and _part(rng) < 0.5:
        unit, other = other, unit
    device = _elsewhere(of, now, rng, unit) if other < 0 else now.devices[other]
    if device == now.devices[unit]:
        return
    if len(of.sets.label) and _part(rng) < 0.5:
        _of_set(of, now, rng, row, unit, device)
    elif _part(rng) < 0.5:
        level = _level(of, rng, done)
        _whole(of, now, row, level, of.clusters.label[level, unit], device)
    else:
        _region(of, now, rng, done, row, unit, device)


@helper
def _after(until: NDArray[np.float64], seconds: float) -> int:
    """The first part of a path that is over after so many seconds, or else the last one."""
    low, high = 0, len(until) - 1
    while low < high:
        middle = (low + high) // 2
        if until[middle] > seconds:
            high = middle
        else:
            low = middle + 1
    return low


@allocating_helper
def _swap(of: Neighborhoods, now: MoveState, rng: Any, done: float, row: int) -> None:
    level = _level(of, rng, done)
    one, other = _below(rng, _sets(of.clusters, level)), _below(rng, _sets(of.clusters, level))
    here = now.devices[of.clusters.member[level, _span(of.clusters, level, one)[0]]]
    there = now.devices[of.clusters.member[level, _span(of.clusters, level, other)[0]]]
    if here != there:
        _whole(of, now, row, level, one, there)
        _whole(of, now, row, level, other, here)


@helper
def _whole(of: Neighborhoods, now: MoveState, row: int, level: int, cluster: int, device: int) -> None:
    """Adds a cluster to the move."""
    first, last = _span(of.clusters, level, cluster)
    for i in range(first, last):
        _add(now, row, of.clusters.member[level, i], device)


@allocating_helper
def _of_set(of: Neighborhoods, now: MoveState, rng: Any, row: int, unit: int, device: int) -> None:
    """Adds the set that a unit is in: all of it that may go, or what is on its device, or a stretch of either."""
    level = _below(rng, len(of.sets.label))
    first, last = _span(of.sets, level, of.sets.label[level, unit])
    here = _part(rng) < 0.5
    for i in range(first, last):
        v = of.sets.member[level, i]
        if of.may[v, device] and (not here or now.devices[v] == now.devices[unit]):
            _add(now, row, v, device)
    if _part(rng) < 0.5:
        count = now.size[row]
        length = int(float(count) ** _part(rng)) + 1
        at = 0
        while at < count and of.place[now.unit[row, at]] < of.place[unit]:
            at += 1
        begin = max(at - _below(rng, length), 0)
        end = min(begin + length, count)
        for i in range(begin, end):
            now.unit[row, i - begin] = now.unit[row, i]
        now.size[row] = max(end - begin, 0)


@allocating_helper
def _region(of: Neighborhoods, now: MoveState, rng: Any, done: float, row: int, unit: int, device: int) -> None:
    """Adds what is around a unit on its device, nearest first."""
    level = _level(of, rng, done)
    mean = len(now.devices) / _sets(of.clusters, level)
    size = min(max(int(np.rint(mean * (0.5 + _part(rng)))), 1), len(now.devices))
    now.size[row] = around(of.near, now.devices, unit, now.seen, now.unit[row, :size])
    for i in range(now.size[row]):
        now.device[row, i] = device


@helper
def around(near: Lists, devices: IntArray, unit: int, seen: BoolArray, out: IntArray) -> int:
    """Up to as many units as there is room for around one, nearest first, on its device and connected by units there.

    Args:
      near: neighbors of each unit.
      devices: [U].
      unit: where it begins.
      seen: [U] no unit, before and after.
      out: where they go.

    Returns:
      How many there are.
    """
    out[0] = unit
    seen[unit] = True
    count, i = 1, 0
    while i < count < len(out):
        for e in range(near.first[out[i]], near.first[out[i] + 1]):
            v = near.value[e]
            if count < len(out) and not seen[v] and devices[v] == devices[unit]:
                seen[v] = True
                out[count] = v
                count += 1
        i += 1
    for i in range(count):
        seen[out[i]] = False
    return count


@allocating_helper
def _elsewhere(of: Neighborhoods, now: MoveState, rng: Any, unit: int) -> int:
    """The device of a neighbor of the unit, or a random one."""
    first, last = of.near.first[unit], of.near.first[unit + 1]
    drawn = _part(rng)
    if drawn < 0.5 and last > first:
        return now.devices[of.near.value[first + _below(rng, last - first)]]
    choice = of.allowed if drawn > 1 - _ANY_DEVICE else of.usual
    first, last = choice.first[of.kind[unit]], choice.first[of.kind[unit] + 1]
    return choice.value[first + _below(rng, last - first)]


@allocating_helper
def _at_border(of: Neighborhoods, now: MoveState, rng: Any) -> tuple[int, int]:
    """A unit with an edge to another device, and that device; (-1, -1) if there is none."""
    if now.cuts[0] < 0:
        count = 0
        for e in range(len(of.src)):
            if now.devices[of.src[e]] != now.devices[of.dst[e]]:
                now.cut[count] = e
                count += 1
        now.cuts[0] = count
    if now.cuts[0] == 0:
        return -1, -1
    edge = now.cut[_below(rng, now.cuts[0])]
    unit, other = of.src[edge], of.dst[edge]
    if _part(rng) >= 0.5:
        unit, other = other, unit
    return unit, now.devices[other]


@allocating_helper
def _level(of: Neighborhoods, rng: Any, done: float) -> int:
    """A level near the one whose turn it is: the coarsest at first, single units at the end."""
    count = len(of.clusters.label)
    turn = (1.0 - done) * (count - 1) + _SPREAD * count * random_standard_normal(rng.bit_generator)
    return min(max(int(np.rint(turn)), 0), count - 1)


@allocating_helper
def _part(rng: Any) -> float:
    """The generator's `random`, whose overload takes several times as long to compile."""
    return next_double(rng.bit_generator)


@allocating_helper
def _below(rng: Any, count: int) -> int:
    """The generator's `integers` from 0 on, of which there are at least one and fewer than 2^32."""
    if count == 1:
        return 0
    number = np.uint64(count)
    drawn = np.uint64(next_uint32(rng.bit_generator)) * number
    rest = drawn & np.uint64(_WORD - 1)
    if rest < number:
        threshold = np.uint64(_WORD - count) % number
        while rest < threshold:
            drawn = np.uint64(next_uint32(rng.bit_generator)) * number
            rest = drawn & np.uint64(_WORD - 1)
    return np.int64(drawn >> np.uint64(32))  # type: ignore[return-value]


@helper
def _changes(of: Neighborhoods, now: MoveState, row: int) -> bool:
    """Whether a move is allowed and changes something."""
    changes = False
    for i in range(now.size[row]):
        u, d = now.unit[row, i], now.device[row, i]
        if not of.may[u, d]:
            return False
        changes = changes or now.devices[u] != d
    return changes


@helper
def _sets(of: Levels, level: int) -> int:
    return of.begin[level + 1] - of.begin[level] - 1


@helper
def _span(of: Levels, level: int, number: int) -> tuple[int, int]:
    at = of.begin[level] + number
    return of.first[at], of.first[at + 1]


@helper
def _add(now: MoveState, row: int, unit: int, device: int) -> None:
    i = now.size[row]
    now.unit[row, i] = unit
    now.device[row, i] = device
    now.size[row] = i + 1
