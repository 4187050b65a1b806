"""MoveFeatures: what can be told of moves before they are tried."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.by_address import ByAddress
from tfplace.core.critical_path import CriticalPath
from tfplace.core.problem import Problem
from tfplace.group.flow import flow
from tfplace.local_search.move_features_kernel import Edges, Feature, Schedule, Seconds, Workspace, fill_busy, look
from tfplace.local_search.move_kernel import MoveState
from tfplace.schedule.list_scheduling.tasks import link_seconds

_PARTS = 256
"""Of a step, for each of which it is known how busy devices are."""


class MoveFeatures:
    """Tells what moves do to loads and transfers, and whether there is time for it in the schedule as it was.

    Args:
      problem: whose units are moved.
    """

    def __init__(self, problem: Problem) -> None:
        self._edges = ByAddress(edges_of(problem))
        unit_s = np.where(problem.allowed, problem.unit_seconds, 0.0)
        self._seconds = ByAddress(Seconds(np.ascontiguousarray(unit_s), *link_seconds(problem)))
        self._marks = ByAddress(Workspace(np.zeros(problem.num_units, np.bool_), np.zeros(problem.num_units, np.int32)))
        self._schedule: ByAddress[Schedule] | None = None

    def learn(self, devices: IntArray, path: CriticalPath) -> None:
        """Of a step: its placement [U], and what made it as long as it is."""
        computes = path.reader < 0
        critical = _sums(path.unit[computes], path.seconds[computes], len(devices))
        step_s = float(path.finish.max(initial=0.0))
        busy = np.zeros((self._seconds.fields.unit.shape[1], _PARTS + 1))
        self._schedule = None
        if step_s > 0:
            fill_busy(path.start, path.finish, self._seconds.fields.unit, np.asarray(devices, np.int32), step_s, busy)
            self._schedule = ByAddress(Schedule(path.start, path.finish, critical, busy, step_s))

    def of(self, now: MoveState, count: int, done: float) -> FloatArray | None:
        """[N, F] of the first moves of a placement, `Feature`; None as long as no step that takes time is known.

        Args:
          now: the placement, and the moves.
          count: how many.
          done: part of a cycle that is over.
        """
        if self._schedule is None:
            return None
        unit_s, devices = self._seconds.fields.unit, now.devices
        load = _sums(devices, unit_s[np.arange(len(devices)), devices], unit_s.shape[1])
        out = np.zeros((count, len(Feature)))
        look(self._edges, self._seconds, self._schedule, self._marks, now, load, done, out)
        return out


def edges_of(problem: Problem) -> Edges:
    """What units make that others read; a tensor once for every unit that reads it."""
    moving, of_op, units = flow(problem), problem.grouping.unit_of, problem.num_units
    maker, reader = of_op[moving.src].astype(np.int64), of_op[moving.dst].astype(np.int64)
    apart = np.flatnonzero(maker != reader)
    tensor = moving.tensor[apart].astype(np.int64)
    once = np.where(tensor >= 0, tensor * units + reader[apart], -1 - np.arange(len(apart)))
    kept = apart[np.unique(once, return_index=True)[1]]
    pair, at = np.unique(maker[kept] * units + reader[kept], return_inverse=True)
    size = _sums(at, (moving.size_bytes * moving.trips)[kept], len(pair))
    trips = _sums(at, moving.trips[kept], len(pair))
    maker, reader = np.divmod(pair, units)
    by_reader = np.argsort(reader, kind="stable")
    ends = np.arange(units + 1)
    return Edges(
        np.searchsorted(maker, ends).astype(np.int64),
        reader.astype(np.int32),
        size,
        trips,
        np.searchsorted(reader[by_reader], ends).astype(np.int64),
        by_reader.astype(np.int64),
        maker.astype(np.int32),
    )


def _sums(rows: IntArray | LongArray, values: FloatArray, count: int) -> FloatArray:
    """[count] of the values of each row."""
    return np.bincount(rows, values, count).astype(np.float64)
