"""List scheduling of one problem by any rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.by_address import ByAddress
from tfplace.core.problem import Problem
from tfplace.schedule.list_scheduling import kernel
from tfplace.schedule.list_scheduling.kernel import Plan, Queues, Rule
from tfplace.schedule.list_scheduling.ranks import by_rank, upward_rank
from tfplace.schedule.list_scheduling.tasks import Tasks, Units, make_tasks, make_units


class Schedule(NamedTuple):
    """What was planned.

    Attributes:
      unit_device: [U] devices of the problem's units, whatever they were planned in.
      start_s: [V] seconds of each task; 0 for constants.
      finish_s: [V] seconds; 0 for constants.
      sent_s: [O, D] when each message is on each device, infinite where it is not sent.
      lowest: [D] the least bytes that were ever free of the memory planned with, in the order of planning.
      forced: units that went to a device that had no room.
    """

    unit_device: IntArray
    start_s: FloatArray
    finish_s: FloatArray
    sent_s: FloatArray
    lowest: LongArray
    forced: int

    @property
    def length_s(self) -> float:
        """When the last task finishes."""
        return float(self.finish_s.max())


class Favourites(NamedTuple):
    """The child that should follow each task on its device (SCT).

    Attributes:
      child: [V] a task, or -1.
      seconds: [V] that the transfer to it takes.
    """

    child: IntArray
    seconds: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Scheduler:
    """Plans tasks; what their plans share is worked out once.

    Attributes:
      tasks: the ops of a problem, or whole groups of them (`tfplace.schedule.list_scheduling.fuse`).
      units: which tasks share a device.
    """

    tasks: Tasks
    units: Units

    @classmethod
    def of(cls, problem: Problem) -> Scheduler:
        """A scheduler of the problem's ops in its units."""
        return cls(make_tasks(problem), make_units(problem))

    def slower(self, factor: float) -> Scheduler:
        """One that plans as if every transfer took so many times as long."""
        t = self.tasks
        tasks = t._replace(fixed_s=t.fixed_s * factor, byte_s=t.byte_s * factor, transfer_s=t.transfer_s * factor)
        return replace(self, tasks=tasks)

    @cached_property
    def rank(self) -> FloatArray:
        """[V] upward ranks."""
        return upward_rank(self.tasks)

    @cached_property
    def order(self) -> IntArray:
        """[V'] tasks of units by falling upward rank."""
        return by_rank(self.rank, self.units.of_op)

    def by_order(
        self,
        units: Units | None = None,
        *,
        order: IntArray | None = None,
        serial: bool = False,
        whole: bool = False,
        memory: float = 1.0,
    ) -> Schedule:
        """Every task where it finishes earliest, with insertion into idle gaps.

        Args:
          units: other units of the same tasks.
          order: [V'] in which tasks are planned, topological; by default falling upward rank.
          serial: transfers wait for their channels.
          whole: a unit's first task decides with the rest of the unit in mind.
          memory: fraction of every device's limit that may be planned with.
        """
        units = self.units if units is None else units
        plan = self._plan(units, memory, gaps=True)
        chosen = self.order if order is None else order
        kernel.by_order(*map(ByAddress, (self.tasks, units, plan)), chosen, ByAddress(Rule(serial, whole, False)))
        return _schedule(plan, units)

    def by_start(self, *, favourites: Favourites | None = None, serial: bool = False, memory: float = 1.0) -> Schedule:
        """Always the task and device with the earliest start; ties go to the higher upward rank.

        Args:
          favourites: children for which devices wait.
          serial: transfers wait for their channels.
          memory: fraction of every device's limit that may be planned with.
        """
        plan = self._plan(self.units, memory, gaps=False)
        queues = _queues(len(self.tasks.seconds), len(self.tasks.limit), favourites)
        rule = Rule(serial, False, favourites is not None)
        kernel.by_start(*map(ByAddress, (self.tasks, self.units, plan, queues)), self.order, ByAddress(rule))
        return _schedule(plan, self.units)

    def _plan(self, units: Units, memory: float, gaps: bool) -> Plan:
        ops, devices = self.tasks.seconds.shape
        messages = len(self.tasks.root)
        channels = int(self.tasks.channels.max(initial=-1)) + 1
        room = np.floor(self.tasks.limit * memory).astype(np.int64)
        stretches = (devices, ops + 1 if gaps else 1)
        return Plan(
            unit_device=np.full(len(units.fixed), -1, np.int32),
            start=np.zeros(ops),
            finish=np.zeros(ops),
            sent=np.full((messages, devices), np.inf),
            channel=np.zeros(channels),
            trial=np.zeros(channels),
            room=room,
            lowest=room.copy(),
            readers=np.zeros(messages, np.int32),
            holders=np.zeros(messages, np.int32),
            tail=np.zeros(devices),
            promised=np.zeros(devices),
            begins=np.empty(stretches),
            ends=np.empty(stretches),
            stretches=np.zeros(devices, np.int32),
            score=np.zeros(devices),
            counts=np.zeros(3, np.int64),
        )


def _queues(ops: int, devices: int, favourites: Favourites | None) -> Queues:
    none = Favourites(np.full(ops, -1, np.int32), np.zeros(ops))
    child, seconds = none if favourites is None else favourites
    return Queues(
        place=np.zeros(ops, np.int32),
        missing=np.zeros(ops, np.int32),
        chances=np.zeros(ops, np.int32),
        stage=np.zeros(ops, np.int32),
        wait_s=np.empty((devices, 2 * ops + 1)),
        wait=np.empty((devices, 2 * ops + 1), np.int32),
        free=np.empty((devices, 2 * ops + 1), np.int32),
        waiting=np.zeros(devices, np.int32),
        freed=np.zeros(devices, np.int32),
        favourite=child,
        favour_s=seconds,
        awaited=np.full(devices, -1, np.int32),
        until=np.zeros(devices),
    )


def _schedule(plan: Plan, units: Units) -> Schedule:
    # Units of constants only, which nobody plans, go to the fastest device.
    best = units.tier == units.tier.min(axis=1, keepdims=True)
    fastest = np.where(best, units.seconds, np.inf).argmin(axis=1)
    device = np.where(plan.unit_device < 0, fastest, plan.unit_device).astype(np.int32)
    return Schedule(
        unit_device=device[units.of_unit],
        start_s=plan.start,
        finish_s=plan.finish,
        sent_s=plan.sent,
        lowest=plan.lowest,
        forced=int(plan.counts[kernel.FORCED]),
    )
