"""Draws of moves as `tfplace.local_search.moves` describes them, in plain Python: what the compiled ones are held
against."""

import numpy as np

from tfplace.group.unit_sets import UnitSets
from tfplace.group.vicinity import Vicinity
from tfplace.local_search.devices import compute_devices
from tfplace.local_search.moves import Move

_ANY_DEVICE, _SPREAD, _CRITICAL, _FRESH = 0.02, 0.3, 0.65, 32


class PlainMoves:
    """As `Moves`, one draw after the other."""

    def __init__(self, context):
        problem = context.problem
        self.context = context
        self.done = 0.0
        self.may = problem.allowed
        self.near, self.sets = Vicinity(problem), UnitSets(problem)
        self.neighbours = np.split(self.near.near, self.near.first[1:-1])
        compute = {*compute_devices(problem).tolist()}
        self.allowed = [np.flatnonzero(row).tolist() for row in problem.allowed]
        self.usual = [[d for d in row if d in compute] or row for row in self.allowed]
        sets = [self._set] if self.sets.labels else []
        self.kinds = (self._cluster, self._swap, self._border, self._across, *sets)
        self.path = _Path(context)

    def draw_all(self, devices, count):
        """Moves that change something."""
        found = []
        for _ in range(10_000):
            move = self.draw(devices)
            if move is not None and np.any(devices[move.units] != move.devices):
                found.append(move)
                if len(found) == count:
                    break
        return found

    def draw(self, devices):
        """A move of the placement [U], or None if the draw found none that is allowed.

        Raises:
          BudgetSpentError: nothing is left for a critical path.
        """
        critical = self.context.rng.random() < _CRITICAL and self.path.refresh(devices)
        move = (self._critical if critical else self.kinds[self._below(len(self.kinds))])(devices)
        return move if move is not None and self.may[move.units, move.devices].all() else None

    def _critical(self, devices):
        """What computes on the critical path to another device; or one end of a transfer there to the other end."""
        unit, other = self.path.draw()
        device = self._elsewhere(devices, unit) if other < 0 else int(devices[other])
        if device == devices[unit]:
            return None
        if self.sets.labels and self.context.rng.random() < 0.5:
            return self._of_set(devices, unit, device)
        if self.context.rng.random() < 0.5:
            return Move(self._near(self._level(), unit), device)
        return self._region(devices, unit, device)

    def _cluster(self, devices):
        """A cluster to the device of a neighbour of one of its units, or to a random one."""
        clusters = self.near.clusters[self._level()]
        units = clusters[self._below(len(clusters))]
        return Move(units, self._elsewhere(devices, int(units[self._below(len(units))])))

    def _swap(self, devices):
        """Two clusters of one level to each other's devices."""
        clusters = self.near.clusters[self._level()]
        one, other = (clusters[self._below(len(clusters))] for _ in range(2))
        here, there = devices[one[0]], devices[other[0]]
        if here == there:
            return None
        units = np.concatenate([one, other])
        return Move(units, np.repeat([there, here], [len(one), len(other)]).astype(np.int32))

    def _border(self, devices):
        """A region on one side of an edge between two devices to the device on the other side."""
        unit, device = self._cut(devices)
        return None if unit < 0 else self._region(devices, unit, device)

    def _across(self, devices):
        """The cluster of a unit at an edge between two devices to the device on the other side."""
        unit, device = self._cut(devices)
        return None if unit < 0 else Move(self._near(self._level(), unit), device)

    def _set(self, devices):
        """Units of a set to the device of a neighbour of one of them, or to a random one."""
        unit = self._below(len(devices))
        return self._of_set(devices, unit, self._elsewhere(devices, unit))

    def _of_set(self, devices, unit, device):
        """The set that a unit is in: all of it that may go, or what is on its device, or a stretch of either."""
        level = self._below(len(self.sets.labels))
        units = self.sets.sets[level][self.sets.labels[level][unit]]
        units = units[self.may[units, device]]
        if self.context.rng.random() < 0.5:
            units = units[devices[units] == devices[unit]]
        if self.context.rng.random() < 0.5:
            length = int(len(units) ** self.context.rng.random()) + 1
            here = int(np.searchsorted(self.sets.place[units], self.sets.place[unit]))
            first = max(here - self._below(length), 0)
            units = units[first : first + length]
        return Move(units, device)

    def _region(self, devices, unit, device):
        mean = len(devices) / len(self.near.clusters[self._level()])
        size = max(round(mean * (0.5 + float(self.context.rng.random()))), 1)
        units, seen, at = [unit], {unit}, 0
        while at < len(units) < size:
            for v in self.neighbours[units[at]].tolist():
                if len(units) < size and v not in seen and devices[v] == devices[unit]:
                    units.append(v)
                    seen.add(v)
            at += 1
        return Move(np.array(units), device)

    def _near(self, level, unit):
        return self.near.clusters[level][self.near.labels[level][unit]]

    def _elsewhere(self, devices, unit):
        """The device of a neighbour of the unit, or a random one."""
        near = self.neighbours[unit]
        draw = float(self.context.rng.random())
        if draw < 0.5 and len(near):
            return int(devices[near[self._below(len(near))]])
        choice = self.allowed[unit] if draw > 1 - _ANY_DEVICE else self.usual[unit]
        return int(choice[self._below(len(choice))])

    def _cut(self, devices):
        """A unit with an edge to another device, and that device; (-1, -1) if there is none."""
        cut = np.flatnonzero(devices[self.near.src] != devices[self.near.dst])
        if not len(cut):
            return -1, -1
        edge = cut[self._below(len(cut))]
        ends = int(self.near.src[edge]), int(self.near.dst[edge])
        unit, other = ends if self.context.rng.random() < 0.5 else ends[::-1]
        return unit, int(devices[other])

    def _level(self):
        """A level near the one whose turn it is: the coarsest at first, single units at the end."""
        count = len(self.near.clusters)
        turn = (1.0 - self.done) * (count - 1) + _SPREAD * count * float(self.context.rng.standard_normal())
        return min(max(round(turn), 0), count - 1)

    def _below(self, count):
        return int(self.context.rng.integers(count))


class _Path:
    """The critical path of a placement, or of one a few moves before.

    Args:
      context: tells it.
    """

    def __init__(self, context):
        self._context = context
        self._devices = None
        self._draws = _FRESH
        self._units = np.zeros((0, 2), np.int32)
        self._until = np.zeros(1)

    def refresh(self, devices):
        """Asks for that of the placement [U] if it is time to; whether there is any."""
        self._draws += 1
        if self._draws > _FRESH and devices is not self._devices:
            self._devices, self._draws = devices, 0
            path = self._context.critical_path(devices)
            if path is not None:
                self._units, self._until = np.stack([path.unit, path.reader], axis=1), np.cumsum(path.seconds)
        return len(self._units) > 0

    def draw(self):
        """A unit that computes on the path, and -1; or both ends of a transfer, in any order; as they take seconds."""
        rng = self._context.rng
        at = np.searchsorted(self._until, rng.random() * self._until[-1], "right")
        unit, other = self._units[min(int(at), len(self._units) - 1)].tolist()
        return (other, unit) if other >= 0 and rng.random() < 0.5 else (unit, other)
