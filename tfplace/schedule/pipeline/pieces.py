"""A pipeline's pieces: blocks in their order, and kinds of devices."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import BoolArray, FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.forward import forward_blocks
from tfplace.schedule.pipeline.ideals import depth_first_order
from tfplace.simulation.pipeline import LoadProgram, compile_loads, pays
from tfplace.simulation.relaxation import relax


class Pieces(NamedTuple):
    """What blocks take on each kind of device.

    Axes: [B] blocks, [K] kinds of devices, [M] messages between blocks, [R] (message, block) pairs.

    Attributes:
      seconds: [B, K] infinite where some unit of the block may not be.
      held: [B] bytes.
      limit: [K] bytes.
      number: [K] devices of the kind.
      out: [M, K] seconds that sending a message takes.
      into: [M, K] seconds that receiving it takes.
      size: [M] bytes that the copy holds.
      maker: [M] block, -1 for a unit that is in none.
      outside: [M] whether a unit that is in no block reads it.
      first: [M + 1] message m is read by the blocks `reader[first[m]:first[m + 1]]`.
      reader: [R] other blocks than the maker, each once.
      touch_first: [B + 1] block b makes or reads the messages `touch[touch_first[b]:touch_first[b + 1]]`.
      touch: messages.
      work: [B] weighted seconds of a block on the device where they are least; see
        `tfplace.simulation.relaxation.relax`.
      weight: [K] of a device of the kind.
    """

    seconds: FloatArray
    held: LongArray
    limit: LongArray
    number: IntArray
    out: FloatArray
    into: FloatArray
    size: LongArray
    maker: IntArray
    outside: BoolArray
    first: IntArray
    reader: IntArray
    touch_first: IntArray
    touch: IntArray
    work: FloatArray
    weight: FloatArray


class Order(NamedTuple):
    """How units and devices are seen by `Pieces`.

    Attributes:
      block: [U] of each unit, -1 for units left out.
      before: [E, 2] blocks of which the first comes before the second.
      kind: [D] of each device.
      joined: blocks there were before stretches of one topological order were joined; 0 if they were not.
    """

    block: IntArray
    before: IntArray
    kind: IntArray
    joined: int


def make_pieces(problem: Problem, most: int, states: int, home: IntArray) -> tuple[Order, Pieces]:
    """Blocks and kinds of devices of a problem; units that may only be on a host beside accelerators are left out.

    Args:
      problem: what is placed.
      most: blocks; with more, stretches of one depth-first topological order, alike in work, are one block each.
      states: numbers used of each kind of device; with more, kinds that are most alike count as one.
      home: [U] where units are that are left out.
    """
    loads, paying = compile_loads(problem), np.array(pays(problem))
    units, before = forward_blocks(problem)
    out, into = _over_slowest(loads, paying)
    seconds = np.where(problem.allowed, loads.seconds, np.inf)
    kind = _kinds(problem, seconds, out, into, states)
    one = np.unique(kind, return_index=True)[1]
    limit = np.array([loads.limit[kind == k].min() for k in range(len(one))], np.int64)
    may: NDArray[np.bool_] = np.asarray(problem.allowed[:, paying].any(axis=1))
    block, before = _without(may, *_without_idle_leaves(loads, units, before, problem.allowed))
    found = int(block.max(initial=-1)) + 1
    if found > most:
        block, before = _stretches(block, before, loads.seconds.mean(axis=1), most)
    count = int(block.max(initial=-1)) + 1
    maker, outside, first, reader, kept = _messages(loads, block)
    _with_home(loads, block, home, out, into)
    seconds, out, into = (_longest(x, kind) for x in (seconds, out, into))
    by_block = np.zeros((count, len(one)))
    held = np.zeros(count, np.int64)
    np.add.at(by_block, block[block >= 0], seconds[block >= 0])
    np.add.at(held, block[block >= 0], loads.unit_bytes[block >= 0])
    weight = relax(problem.unit_seconds[block >= 0]).weight[one]  # what is in no block is not shared out
    touched = np.concatenate([maker, reader])
    order = np.argsort(touched, kind="stable")
    messages = np.concatenate([np.arange(len(maker)), np.repeat(np.arange(len(maker)), np.diff(first))])
    with np.errstate(invalid="ignore"):
        work = np.where(np.isfinite(by_block), by_block * weight, np.inf)
    pieces = Pieces(
        seconds=by_block,
        held=held,
        limit=limit,
        number=np.bincount(kind).astype(np.int32),
        out=out[kept],
        into=into[kept],
        size=loads.size[kept],
        maker=maker,
        outside=outside,
        first=first,
        reader=reader,
        touch_first=np.searchsorted(touched[order], np.arange(count + 1)).astype(np.int32),
        touch=messages[order].astype(np.int32),
        work=work.min(axis=1),
        weight=weight,
    )
    return Order(block, before, kind, found if found > most else 0), pieces


def _over_slowest(loads: LoadProgram, paying: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """[M, D] seconds of sending and receiving over the slowest link to another device that pays, or to any."""
    devices = len(paying)
    out, into = (np.zeros((len(loads.maker), devices)) for _ in range(2))
    for d in range(devices):
        others = [e for e in range(devices) if e != d and paying[e]] or [e for e in range(devices) if e != d]
        for e in others:
            sent = loads.trips * loads.out[0, d, e] + loads.volume * loads.out[1, d, e]
            received = loads.trips * loads.into[0, e, d] + loads.volume * loads.into[1, e, d]
            out[:, d], into[:, d] = np.maximum(out[:, d], sent), np.maximum(into[:, d], received)
    return out, into


def _kinds(problem: Problem, seconds: FloatArray, out: FloatArray, into: FloatArray, states: int) -> IntArray:
    """[D] devices between which a pipeline could not tell a difference have the same number, and those most alike.

    Alike are those that may have the same units and take about as long for all of them.
    """
    columns = np.concatenate([seconds, out, into, problem.memory_limit[None].astype(np.float64)])
    kind: IntArray = np.unique(columns, axis=1, return_inverse=True)[1].ravel().astype(np.int32)
    able = np.isfinite(seconds)
    total = np.log(np.where(able, seconds, 0.0).sum(axis=0) + 1e-300)
    while math.prod((np.bincount(kind) + 1).tolist()) > states and kind.max() > 0:
        one = np.unique(kind, return_index=True)[1]
        pairs = [
            (int((able[:, a] != able[:, b]).sum()), abs(total[a] - total[b]), i, j)
            for j, b in enumerate(one)
            for i, a in enumerate(one[:j])
        ]
        _, _, first, second = min(pairs)
        kind = np.unique(np.where(kind == second, first, kind), return_inverse=True)[1].astype(np.int32)
    return kind


def _longest(seconds: FloatArray, kind: IntArray) -> FloatArray:
    """[X, K] the most of [X, D] among the devices of each kind."""
    return np.stack([seconds[:, kind == k].max(axis=1) for k in range(int(kind.max()) + 1)], axis=1)


def _without_idle_leaves(
    loads: LoadProgram, block: IntArray, before: IntArray, allowed: NDArray[np.bool_]
) -> tuple[IntArray, IntArray]:
    """Joins blocks of no seconds that a single other block exchanges anything with to that block.

    Such a block adds nothing but a transfer where it is apart, so this loses no solution, as long as it may be wherever
    the other may. If not everything fits every device, only blocks of no bytes are joined.
    """
    count = int(block.max(initial=-1)) + 1
    near: list[set[int]] = [set() for _ in range(count)]
    of = np.repeat(np.arange(len(loads.maker)), np.diff(loads.first))
    flows = np.stack([block[loads.maker[of]], block[loads.reader]], axis=1)
    for a, b in np.concatenate([flows, before]).tolist():
        if a != b:
            near[a].add(b)
            near[b].add(a)
    tight = loads.unit_bytes.sum() + loads.size.sum() > loads.limit.min()
    busy = np.zeros(count)
    np.add.at(busy, block, loads.seconds.max(axis=1) + (loads.unit_bytes if tight else 0))
    may = np.ones((count, allowed.shape[1]), np.bool_)
    np.logical_and.at(may, block, allowed)
    into = list(range(count))
    leaves = [b for b in range(count) if busy[b] == 0 and len(near[b]) == 1]
    while leaves:
        leaf = leaves.pop()
        if len(near[leaf]) != 1:
            continue
        (other,) = near[leaf]
        if np.any(may[other] & ~may[leaf]):
            continue
        near[leaf].clear()
        into[leaf] = other
        near[other].discard(leaf)
        if busy[other] == 0 and len(near[other]) == 1:
            leaves.append(other)
    for b in range(count):
        while into[into[b]] != into[b]:
            into[b] = into[into[b]]
    label = np.unique(into, return_inverse=True)[1]
    pairs = np.unique(label[before].reshape(-1, 2), axis=0)
    return label[block].astype(np.int32), pairs[pairs[:, 0] != pairs[:, 1]].astype(np.int32)


def _without(may: NDArray[np.bool_], block: IntArray, before: IntArray) -> tuple[IntArray, IntArray]:
    """Takes units out; what came before a block that is gone comes before what came after it no longer."""
    kept = np.unique(block[may])
    place = np.full(int(block.max(initial=-1)) + 2, -1, np.int32)
    place[kept] = np.arange(len(kept))
    pairs = place[before].reshape(-1, 2)
    return np.where(may, place[block], -1).astype(np.int32), pairs[(pairs >= 0).all(axis=1)]


def _stretches(block: IntArray, before: IntArray, seconds: FloatArray, most: int) -> tuple[IntArray, IntArray]:
    """At most so many stretches of one order of the blocks, alike in seconds and number of blocks, as a chain."""
    count = int(block.max()) + 1
    line = depth_first_order(count, before)
    work: FloatArray = np.bincount(block[block >= 0], seconds[block >= 0], minlength=count).astype(np.float64)
    share = work / max(float(work.sum()), 1e-300) + 1 / count
    cell = np.empty(count, np.int32)
    cell[line] = np.minimum(np.cumsum(share[line]) / share.sum() * most, most - 1).astype(np.int32)
    cell = np.unique(cell, return_inverse=True)[1].astype(np.int32)
    chain = np.stack([np.arange(cell.max()), np.arange(1, cell.max() + 1)], axis=1).astype(np.int32)
    return np.append(cell, np.int32(-1))[block].astype(np.int32), chain


def _messages(loads: LoadProgram, block: IntArray) -> tuple[IntArray, BoolArray, IntArray, IntArray, LongArray]:
    """See `Pieces`: makers, outside, offsets and readers of messages that cross a block's edge, and which they are."""
    of = np.repeat(np.arange(len(loads.maker)), np.diff(loads.first))
    pairs = np.stack([of, block[loads.reader]], axis=1)
    maker, outside = block[loads.maker], np.zeros(len(loads.maker), np.bool_)
    outside[of[pairs[:, 1] < 0]] = True
    outside &= maker >= 0
    pairs = np.unique(pairs[(pairs[:, 1] >= 0) & (pairs[:, 1] != maker[of])], axis=0)
    kept = np.union1d(pairs[:, 0], np.flatnonzero(outside))
    first = np.searchsorted(pairs[:, 0], np.append(kept, len(maker))).astype(np.int32)
    return maker[kept].astype(np.int32), outside[kept], first, pairs[:, 1].astype(np.int32), kept


def _with_home(loads: LoadProgram, block: IntArray, home: IntArray, out: FloatArray, into: FloatArray) -> None:
    """Has [M, D] seconds of sending and receiving count the way to and from units that are left out."""
    of = np.repeat(np.arange(len(loads.maker)), np.diff(loads.first))
    made = np.flatnonzero(block[loads.maker] < 0)
    there = home[loads.maker[made]]
    into[made] = loads.trips[made, None] * loads.into[0, there] + loads.volume[made, None] * loads.into[1, there]
    into[made, there] = 0.0
    read = np.flatnonzero(block[loads.reader] < 0)
    there, of = home[loads.reader[read]], of[read]
    sent = loads.trips[of, None] * loads.out[0][:, there].T + loads.volume[of, None] * loads.out[1][:, there].T
    sent[np.arange(len(read)), there] = 0.0
    np.maximum.at(out, of, sent)
