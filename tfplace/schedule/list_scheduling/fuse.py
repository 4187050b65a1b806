"""Groups of units as tasks that run as a whole: a smaller list to schedule."""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.group.acyclic import Precedence, precedence
from tfplace.group.flow import flow
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.schedule.list_scheduling.tasks import (
    PREFERRED,
    Tasks,
    Units,
    compute_mask,
    link_seconds,
    make_units,
    mean_transfer_s,
)
from tfplace.simulation.program import MESSAGE, OP, RecordArray


def fuse(problem: Problem, label: IntArray | None = None, before: Precedence | None = None) -> Scheduler:
    """A scheduler in which each group is one task, in a topological order of the groups.

    A task starts when all that its ops read from other groups has come, and sends when all of them have run. What a
    group reads from groups later in the order, as the update of a variable reads its gradient, does not count. The
    messages of a task all have its most trips.

    Args:
      problem: what is placed.
      label: [U] group of each unit, numbered from 0; by default each unit is one. Groups that wait for one another in a
        circle are put in the order of their first units.
      before: the problem's, if it is at hand.
    """
    label = np.arange(problem.num_units, dtype=np.int32) if label is None else label
    count = int(label.max(initial=-1)) + 1
    group = _places(precedence(problem) if before is None else before, label, count)[label]
    traffic = _traffic(problem, group)
    inner = make_units(problem, group)
    fixed_s, byte_s = link_seconds(problem)
    ops, messages = _tables(traffic, count)
    units = _own_units(inner, count)
    preferred = units.tier == PREFERRED
    compute = compute_mask(problem)
    tasks = Tasks(
        ops=ops,
        messages=messages,
        seconds=inner.seconds,
        reader=traffic.pairs[:, 1].astype(np.uint32),
        input=_by_reader(traffic.pairs)[:, 0].astype(np.uint32),
        channels=np.array(problem.topology.channels, np.int32, order="C"),
        limit=np.array(problem.memory_limit, np.int64),
        root=np.arange(len(traffic.maker), dtype=np.int32),
        fixed_s=fixed_s,
        byte_s=byte_s,
        mean_s=np.where(preferred, inner.seconds, 0.0).sum(axis=1) / preferred.sum(axis=1),
        transfer_s=mean_transfer_s(messages[:-1], ops, fixed_s, byte_s, compute),
    )
    return Scheduler(tasks, units)


class _Traffic(NamedTuple):
    """[O] messages between groups: maker, bytes, trips; and [R, 2] distinct pairs of message and reading group."""

    maker: IntArray
    size: LongArray
    trips: FloatArray
    pairs: LongArray


def _traffic(problem: Problem, group: IntArray) -> _Traffic:
    edges = flow(problem)
    unit_of = problem.grouping.unit_of
    src, dst = group[unit_of[edges.src]].astype(np.int64), group[unit_of[edges.dst]]
    ahead = src < dst
    # A completion is the group's last message; those of all its ops are one.
    last = problem.graph.num_tensors
    ids = (src * (last + 1) + np.where(edges.tensor < 0, last, edges.tensor))[ahead]
    distinct, first, message = np.unique(ids, return_index=True, return_inverse=True)
    pairs = np.unique(np.stack([message.ravel(), dst[ahead]], axis=1), axis=0)
    return _Traffic(
        maker=(distinct // (last + 1)).astype(np.int32),
        size=edges.size_bytes[ahead][first].astype(np.int64),
        trips=edges.trips[ahead][first],
        pairs=pairs.astype(np.int64).reshape(-1, 2),
    )


def _by_reader(pairs: LongArray) -> LongArray:
    return pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]


def _tables(traffic: _Traffic, count: int) -> tuple[RecordArray, RecordArray]:
    """`OP` and `MESSAGE` records, each with one more that holds where the others end."""
    number = len(traffic.maker)
    messages = np.zeros(number + 1, MESSAGE)
    messages["maker"][:-1] = traffic.maker
    messages["alias"] = -1
    messages["reader_first"] = np.searchsorted(traffic.pairs[:, 0], np.arange(number + 1))
    messages["size"][:-1] = traffic.size
    messages["volume"][:-1] = traffic.size * traffic.trips
    ops = np.zeros(count + 1, OP)
    ops["unit"][:-1] = np.arange(count)
    ops["first"] = np.searchsorted(traffic.maker, np.arange(count + 1))
    ops["input_first"] = np.searchsorted(_by_reader(traffic.pairs)[:, 1], np.arange(count + 1))
    np.maximum.at(ops["trips"], traffic.maker, traffic.trips)
    return ops, messages


def _own_units(inner: Units, count: int) -> Units:
    """Each task a unit of its own."""
    every = np.arange(count, dtype=np.int32)
    return inner._replace(of_op=every, first=np.arange(count + 1, dtype=np.int32), members=every)


def _places(before: Precedence, label: IntArray, count: int) -> IntArray:
    """[G] position of each group: after all it waits for; where that is a circle, in the order of first units."""
    rank = np.full(count, len(label), np.int64)
    np.minimum.at(rank, label, before.rank)
    pairs = np.stack([label[before.src], label[before.dst]], axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    bounds = np.searchsorted(pairs[:, 0], np.arange(count + 1)).tolist()
    after = [pairs[a:b, 1].tolist() for a, b in itertools.pairwise(bounds)]
    waiting = np.bincount(pairs[:, 1], minlength=count).tolist()
    ready = [(rank_of, g) for g, rank_of in enumerate(rank.tolist()) if not waiting[g]]
    heapq.heapify(ready)
    stuck = iter(np.argsort(rank, kind="stable").tolist())
    place = [-1] * count
    done = 0
    while done < count:
        g = heapq.heappop(ready)[1] if ready else next(stuck)
        if place[g] >= 0:
            continue
        place[g] = done
        done += 1
        for h in after[g]:
            waiting[h] -= 1
            if not waiting[h]:
                heapq.heappush(ready, (int(rank[h]), h))
    return np.array(place, np.int32)
