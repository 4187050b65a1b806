"""Moves of a search: parts of a graph of every size and shape, and where they could go."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.by_address import ByAddress
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.group.unit_sets import UnitSets
from tfplace.group.vicinity import Vicinity
from tfplace.local_search.devices import compute_devices
from tfplace.local_search.move_features import MoveFeatures
from tfplace.local_search.move_kernel import Lists, MoveState, Neighborhoods, Path, draw, levels, lists
from tfplace.local_search.move_selector import MoveSelector

_CRITICAL = 0.65
_FRESH = 32
"""Draws for which a critical path is good, unless the placement stays as it is."""


class Move(NamedTuple):
    """[N] units, and where they go, [N]."""

    units: IntArray
    devices: IntArray


class Moves:
    """Draws moves: two of three take something off the critical path, the others are of four or five kinds alike.

    Those are a cluster to the device of a neighbor of one of its units, or to a random one; two clusters of one level
    to each other's devices; a region, or a cluster, on one side of an edge between two devices to the other side; and
    units of a set to the device of a neighbor of one of them, or to a random one. What computes on the critical path
    goes to another device, and one end of a transfer there to the other end: a cluster, a region, or units of a set. Of
    a set that is all that may go, or what is on one device, or a stretch of either.

    The critical path is that of the schedule, which devices and channels that are busy belong to (`CriticalPath`): in a
    job shop no change that leaves it as it is makes the schedule shorter (P. J. M. van Laarhoven, E. H. L. Aarts,
    J. K. Lenstra: Job Shop Scheduling by Simulated Annealing, Operations Research 40(1), 1992, section 3). Departures:
    the order on a device is that in which ops become ready, so that other changes may; other moves are drawn too, for
    that, and as they make room for the next; the path is asked for once in a while, as it takes an evaluation. Without
    one, as with measured steps, there are only the others.

    With a selector, more are drawn than are asked for, and it says which; as long as no schedule is known, the first.

    Args:
      context: gives the problem, the critical path and the random generator.
      selector: which of the moves drawn are given; by default all.

    Attributes:
      done: part of a cycle that is over, from 0 to 1; clusters and regions get smaller with it.
      parts: what moves are made of.
    """

    def __init__(self, context: SearchContext, selector: MoveSelector | None = None) -> None:
        self.context = context
        self.selector = selector
        self.done = 0.0
        self.parts = _parts(context.problem)
        self._path = ByAddress(Path(np.zeros((0, 2), np.int32), np.zeros(0)))
        self._among = 1 if selector is None else selector.among
        self._move_features = None if selector is None else MoveFeatures(context.problem)
        self._picked = False
        self._good = 0
        self._of: IntArray | None = None
        self._parts = ByAddress(self.parts)
        self._now = ByAddress(_room(self.parts, 1))
        self._devices: IntArray | None = None

    def draw(self, devices: IntArray, count: int = 1) -> list[Move]:
        """Moves of the placement [U] that are allowed and change something; fewer only if many draws found none.

        Args:
          devices: [U]; another array for another placement, as this is how one is told from the last.
          count: how many.

        Raises:
          BudgetSpentError: nothing is left for a critical path.
        """
        now = self.at(devices, count * self._among)
        so_far, asked, ask = (0, 0, self._good), False, True
        while ask:
            stale = devices is not self._of
            found, draws, self._good, ask = draw(
                self._parts, self._path, self._now, self.context.rng, self.done, _CRITICAL, so_far, stale, asked
            )
            if ask:
                self.ask(devices)
                asked = True
            so_far = found, draws, self._good
        move_features = None if self._move_features is None else self._move_features.of(now, found, self.done)
        self._picked = move_features is not None
        if self.selector is None or move_features is None:
            return [drawn(now, row) for row in range(min(found, count))]
        return [drawn(now, row) for row in self.selector.pick(move_features, count).tolist()]

    def tell(self, energies: FloatArray, energy: float) -> None:
        """What became of the moves drawn last, or of the first of them.

        Args:
          energies: [N] seconds, or prices, with each of them.
          energy: the same of the placement that they are of, above 0 if a selector made them.
        """
        if self.selector is not None and self._picked:
            self.selector.tell(1.0 - energies / energy)

    @property
    def path(self) -> Path:
        """The critical path, as it was last asked for."""
        return self._path.fields

    def at(self, devices: IntArray, count: int) -> MoveState:
        """The placement [U], with room for so many moves."""
        if len(self._now.fields.size) != count:
            self._now = ByAddress(_room(self.parts, count))
            self._devices = None
        now = self._now.fields
        if devices is not self._devices:
            self._devices = devices
            now.devices[:] = devices
            now.cuts[0] = -1
        return now

    def ask(self, devices: IntArray) -> None:
        """For the critical path of the placement [U].

        Raises:
          BudgetSpentError: nothing is left for it.
        """
        self._of, self._good = devices, _FRESH * self._among
        path = self.context.critical_path(devices)
        if path is not None and self._move_features is not None:
            self._move_features.learn(devices, path)
        if path is not None:
            unit = np.stack([path.unit, path.reader], axis=1).astype(np.int32, order="C")
            self._path = ByAddress(Path(unit, np.cumsum(path.seconds)))


def drawn(now: MoveState, row: int) -> Move:
    """The move in a row."""
    count = now.size[row]
    return Move(now.unit[row, :count].copy(), now.device[row, :count].copy())


def _room(parts: Neighborhoods, count: int) -> MoveState:
    """For so many moves of a placement."""
    units = len(parts.place)
    return MoveState(
        np.zeros(units, np.int32),
        np.zeros(len(parts.src), np.int64),
        np.array([-1]),
        np.zeros(units, np.bool_),
        np.zeros((count, units), np.int32),
        np.zeros((count, units), np.int32),
        np.zeros(count, np.int64),
    )


@functools.lru_cache(maxsize=1)
def _parts(problem: Problem) -> Neighborhoods:
    """Kept, since a portfolio searches one problem again and again, and this takes seconds for a large graph."""
    rows, kind = np.unique(problem.allowed, axis=0, return_inverse=True)
    compute = {*compute_devices(problem).tolist()}
    allowed = [np.flatnonzero(row).tolist() for row in rows]
    near, sets = Vicinity(problem), UnitSets(problem)
    return Neighborhoods(
        levels(near.labels, near.clusters, problem.num_units),
        levels(sets.labels, sets.sets, problem.num_units),
        sets.place,
        Lists(near.first, near.near),
        near.src.astype(np.int32),
        near.dst.astype(np.int32),
        np.array(problem.allowed, np.bool_, order="C"),
        kind.reshape(-1).astype(np.int64),
        lists(allowed),
        lists([[d for d in row if d in compute] or row for row in allowed]),
    )
