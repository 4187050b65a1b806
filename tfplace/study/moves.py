"""Moves of a search: parts of a graph of every size and shape, and where they could go."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.group.unit_sets import UnitSets
from tfplace.group.vicinity import Vicinity
from tfplace.study.base import Study
from tfplace.study.devices import compute_devices

_ANY_DEVICE = 0.02
_SPREAD = 0.3
_CRITICAL = 0.65
_FRESH = 32
"""Draws for which a critical path is good, unless the placement stays as it is."""


class Move(NamedTuple):
    """Devices for some units: [N] units, and one device or [N]."""

    units: IntArray
    devices: IntArray | int


class Moves:
    """Draws moves: two of three take something off the critical path, the others are of four or five kinds alike.

    The critical path is that of the schedule, which devices and channels that are busy belong to (`CriticalPath`): in a
    job shop no change that leaves it as it is makes the schedule shorter (P. J. M. van Laarhoven, E. H. L. Aarts,
    J. K. Lenstra: Job Shop Scheduling by Simulated Annealing, Operations Research 40(1), 1992, section 3). Departures:
    the order on a device is that in which ops become ready, so that other changes may; other moves are drawn too, for
    that, and as they make room for the next; the path is asked for once in a while, as it takes an evaluation. Without
    one, as with measured steps, there are only the others.

    Args:
      study: gives the problem, the critical path and the random generator.

    Attributes:
      done: part of a cycle that is over, from 0 to 1; clusters and regions get smaller with it.
    """

    def __init__(self, study: Study) -> None:
        problem = study.problem
        self.study = study
        self.done = 0.0
        self.may = problem.allowed
        self.near, self.sets, self.allowed, self.usual = _parts(problem)
        sets = [self._set] if self.sets.labels else []
        self.kinds = (self._cluster, self._swap, self._border, self._across, *sets)
        self.path = _Path(study)

    def draw(self, devices: IntArray) -> Move | None:
        """A move of the placement [U], or None if the draw found none that is allowed.

        Raises:
          BudgetSpentError: nothing is left for a critical path.
        """
        critical = self.study.rng.random() < _CRITICAL and self.path.refresh(devices)
        move = (self._critical if critical else self.kinds[self._below(len(self.kinds))])(devices)
        return move if move is not None and self.may[move.units, move.devices].all() else None

    def _critical(self, devices: IntArray) -> Move | None:
        """What computes on the critical path to another device; or one end of a transfer there to the other end."""
        unit, other = self.path.draw()
        device = self._elsewhere(devices, unit) if other < 0 else int(devices[other])
        if device == devices[unit]:
            return None
        if self.sets.labels and self.study.rng.random() < 0.5:
            return self._of_set(devices, unit, device)
        if self.study.rng.random() < 0.5:
            return Move(self.near.cluster(self._level(), unit), device)
        return self._region(devices, unit, device)

    def _cluster(self, devices: IntArray) -> Move | None:
        """A cluster to the device of a neighbour of one of its units, or to a random one."""
        clusters = self.near.clusters[self._level()]
        units = clusters[self._below(len(clusters))]
        return Move(units, self._elsewhere(devices, int(units[self._below(len(units))])))

    def _swap(self, devices: IntArray) -> Move | None:
        """Two clusters of one level to each other's devices."""
        clusters = self.near.clusters[self._level()]
        one, other = (clusters[self._below(len(clusters))] for _ in range(2))
        here, there = devices[one[0]], devices[other[0]]
        if here == there:
            return None
        units = np.concatenate([one, other])
        return Move(units, np.repeat([there, here], [len(one), len(other)]).astype(np.int32))

    def _border(self, devices: IntArray) -> Move | None:
        """A region on one side of an edge between two devices to the device on the other side."""
        unit, device = self._cut(devices)
        return None if unit < 0 else self._region(devices, unit, device)

    def _across(self, devices: IntArray) -> Move | None:
        """The cluster of a unit at an edge between two devices to the device on the other side."""
        unit, device = self._cut(devices)
        return None if unit < 0 else Move(self.near.cluster(self._level(), unit), device)

    def _set(self, devices: IntArray) -> Move | None:
        """Units of a set to the device of a neighbour of one of them, or to a random one."""
        unit = self._below(len(devices))
        return self._of_set(devices, unit, self._elsewhere(devices, unit))

    def _of_set(self, devices: IntArray, unit: int, device: int) -> Move:
        """The set that a unit is in: all of it that may go, or what is on its device, or a stretch of either."""
        units = self.sets.around(self._below(len(self.sets.labels)), unit)
        units = units[self.may[units, device]]
        if self.study.rng.random() < 0.5:
            units = units[devices[units] == devices[unit]]
        if self.study.rng.random() < 0.5:
            length = int(len(units) ** self.study.rng.random()) + 1
            here = int(np.searchsorted(self.sets.place[units], self.sets.place[unit]))
            first = max(here - self._below(length), 0)
            units = units[first : first + length]
        return Move(units, device)

    def _region(self, devices: IntArray, unit: int, device: int) -> Move:
        size = round(self.near.size(self._level()) * (0.5 + float(self.study.rng.random())))
        return Move(self.near.region(devices, unit, max(size, 1)), device)

    def _elsewhere(self, devices: IntArray, unit: int) -> int:
        """The device of a neighbour of the unit, or a random one."""
        near = self.near.neighbours(unit)
        draw = float(self.study.rng.random())
        if draw < 0.5 and len(near):
            return int(devices[near[self._below(len(near))]])
        choice = self.allowed[unit] if draw > 1 - _ANY_DEVICE else self.usual[unit]
        return int(choice[self._below(len(choice))])

    def _cut(self, devices: IntArray) -> tuple[int, int]:
        """A unit with an edge to another device, and that device; (-1, -1) if there is none."""
        cut = np.flatnonzero(devices[self.near.src] != devices[self.near.dst])
        if not len(cut):
            return -1, -1
        edge = cut[self._below(len(cut))]
        ends = int(self.near.src[edge]), int(self.near.dst[edge])
        unit, other = ends if self.study.rng.random() < 0.5 else ends[::-1]
        return unit, int(devices[other])

    def _level(self) -> int:
        """A level near the one whose turn it is: the coarsest at first, single units at the end."""
        count = len(self.near.clusters)
        turn = (1.0 - self.done) * (count - 1) + _SPREAD * count * float(self.study.rng.standard_normal())
        return min(max(round(turn), 0), count - 1)

    def _below(self, count: int) -> int:
        return int(self.study.rng.integers(count))


class _Parts(NamedTuple):
    """What moves are made of.

    Attributes:
      near: what lies near what.
      sets: scopes, and producers with their only consumers.
      allowed: [U] of devices where each unit may be.
      usual: [U] of those of them that work is spread over, or else all.
    """

    near: Vicinity
    sets: UnitSets
    allowed: list[list[int]]
    usual: list[list[int]]


@functools.lru_cache(maxsize=1)
def _parts(problem: Problem) -> _Parts:
    """Kept, since a portfolio searches one problem again and again, and this takes seconds for a large graph."""
    rows, kind = np.unique(problem.allowed, axis=0, return_inverse=True)
    compute = {*compute_devices(problem).tolist()}
    allowed = [np.flatnonzero(row).tolist() for row in rows]
    usual = [[d for d in row if d in compute] or row for row in allowed]
    each = kind.reshape(-1).tolist()
    return _Parts(Vicinity(problem), UnitSets(problem), [allowed[k] for k in each], [usual[k] for k in each])


class _Path:
    """The critical path of a placement, or of one a few moves before.

    Args:
      study: tells it.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._devices: IntArray | None = None
        self._draws = _FRESH
        self._units = np.zeros((0, 2), np.int32)
        self._until = np.zeros(1)

    def refresh(self, devices: IntArray) -> bool:
        """Asks for that of the placement [U] if it is time to; whether there is any."""
        self._draws += 1
        if self._draws > _FRESH and devices is not self._devices:
            self._devices, self._draws = devices, 0
            path = self._study.critical_path(devices)
            if path is not None:
                self._units, self._until = np.stack([path.unit, path.reader], axis=1), np.cumsum(path.seconds)
        return len(self._units) > 0

    def draw(self) -> tuple[int, int]:
        """A unit that computes on the path, and -1; or both ends of a transfer, in any order; as they take seconds."""
        rng = self._study.rng
        at = np.searchsorted(self._until, rng.random() * self._until[-1], "right")
        unit, other = self._units[min(int(at), len(self._units) - 1)].tolist()
        return (other, unit) if other >= 0 and rng.random() < 0.5 else (unit, other)
