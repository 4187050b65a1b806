"""List scheduling of one problem, by any rule and at any granularity."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.schedule import kernel
from tfplace.schedule.kernel import Plan, Queues, Rule
from tfplace.schedule.ranks import by_rank, upward_rank
from tfplace.schedule.tasks import Tasks, Units, make_tasks, make_units


class Schedule(NamedTuple):
    """What was planned.

    Attributes:
      unit_device: [U] devices of the problem's units, whatever the groups they were planned in.
      start_s: [V] seconds; 0 for constants.
      finish_s: [V] seconds; 0 for constants.
      sent_s: [O, D] when each message is on each device, infinite where it is not sent.
      lowest: [D] the least bytes that were ever free of the memory planned with, by the order of planning.
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
        """When the last op finishes."""
        return float(self.finish_s.max())


class Favourites(NamedTuple):
    """The child that should follow each op on its device (SCT).

    Attributes:
      child: [V] an op, or -1.
      seconds: [V] that the transfer to it takes.
    """

    child: IntArray
    seconds: FloatArray


class Scheduler:
    """Plans one problem; what its plans share is worked out once.

    Args:
      problem: what is placed; with at least one unit.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.tasks: Tasks = make_tasks(problem)

    @cached_property
    def rank(self) -> FloatArray:
        """[V] upward ranks."""
        return upward_rank(self.tasks)

    @cached_property
    def order(self) -> IntArray:
        """[V'] ops of units by falling upward rank."""
        return by_rank(self.rank, self._of_op)

    @cached_property
    def _of_op(self) -> IntArray:
        return make_units(self.problem).of_op

    def by_order(
        self,
        label: IntArray | None = None,
        *,
        order: IntArray | None = None,
        fixed: IntArray | None = None,
        serial: bool = False,
        whole: bool = False,
        memory: float = 1.0,
    ) -> Schedule:
        """Every op where it finishes earliest, with insertion into idle gaps.

        Args:
          label: [U] groups that share a device; by default units alone.
          order: [V'] in which ops are planned, topological; by default falling upward rank.
          fixed: [G] devices already decided, or -1.
          serial: transfers wait for their channels.
          whole: a unit's first op decides with the rest of the unit in mind.
          memory: fraction of every device's limit that may be planned with.
        """
        units = make_units(self.problem, label, fixed)
        plan = self._plan(units, memory, gaps=True)
        chosen = self.order if order is None else order
        kernel.by_order(self.tasks, units, plan, chosen, Rule(serial, whole, False))
        return self._schedule(plan, units, label)

    def by_start(
        self,
        label: IntArray | None = None,
        *,
        favourites: Favourites | None = None,
        serial: bool = False,
        whole: bool = False,
        memory: float = 1.0,
    ) -> Schedule:
        """Always the op and device with the earliest start; ties go to the higher upward rank.

        Args:
          label: [U] groups that share a device; by default units alone.
          favourites: children for which devices wait.
          serial: transfers wait for their channels.
          whole: a unit's first op decides with the rest of the unit in mind.
          memory: fraction of every device's limit that may be planned with.
        """
        units = make_units(self.problem, label)
        plan = self._plan(units, memory, gaps=False)
        queues = _queues(*self.tasks.seconds.shape, favourites)
        rule = Rule(serial, whole, favourites is not None)
        kernel.by_start(self.tasks, units, plan, queues, self.order, rule)
        return self._schedule(plan, units, label)

    def _plan(self, units: Units, memory: float, gaps: bool) -> Plan:
        ops, devices = self.tasks.seconds.shape
        messages = len(self.tasks.root)
        room = np.floor(self.tasks.limit * memory).astype(np.int64)
        size = (devices, ops + 1 if gaps else 1)
        return Plan(
            unit_device=np.full(len(units.fixed), -1, np.int32),
            start=np.zeros(ops),
            finish=np.zeros(ops),
            sent=np.full((messages, devices), np.inf),
            channel=np.zeros(int(self.tasks.channels.max(initial=-1)) + 1),
            trial=np.zeros(int(self.tasks.channels.max(initial=-1)) + 1),
            room=room,
            lowest=room.copy(),
            readers=np.zeros(messages, np.int32),
            holders=np.zeros(messages, np.int32),
            tail=np.zeros(devices),
            promised=np.zeros(devices),
            begins=np.empty(size),
            ends=np.empty(size),
            stretches=np.zeros(devices, np.int32),
            score=np.zeros(devices),
            count=np.zeros(3, np.int64),
        )

    def _schedule(self, plan: Plan, units: Units, label: IntArray | None) -> Schedule:
        # Units of constants only, which nobody plans, go to the fastest device.
        fastest = np.where(units.tier == units.tier.min(axis=1, keepdims=True), units.seconds, np.inf).argmin(axis=1)
        device = np.where(plan.unit_device < 0, fastest, plan.unit_device).astype(np.int32)
        return Schedule(
            unit_device=device if label is None else device[label],
            start_s=plan.start,
            finish_s=plan.finish,
            sent_s=plan.sent,
            lowest=plan.lowest,
            forced=int(plan.count[kernel.FORCED]),
        )


def _queues(ops: int, devices: int, favourites: Favourites | None) -> Queues:
    none = Favourites(np.full(ops, -1, np.int32), np.zeros(ops))
    child, seconds = none if favourites is None else favourites
    return Queues(
        place=np.zeros(ops, np.int32),
        missing=np.zeros(ops, np.int32),
        chances=np.zeros(ops, np.int32),
        stage=np.zeros(ops, np.int32),
        wait_s=np.empty((2 * devices, ops + 1)),
        wait=np.empty((2 * devices, ops + 1), np.int32),
        free=np.empty((2 * devices, ops + 1), np.int32),
        waiting=np.zeros(2 * devices, np.int32),
        freed=np.zeros(2 * devices, np.int32),
        favourite=child,
        favour_s=seconds,
        awaited=np.full(devices, -1, np.int32),
        until=np.zeros(devices),
    )
