"""Local search: simulated annealing that moves clusters of every size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key
from tfplace.group.coarsen import hierarchy
from tfplace.group.flow import flow
from tfplace.placers.base import Study, compute_devices, single_devices

_WHOLE_SPACE = 2000
_OVER_S = 0.01
_OVER_ALL_S = 2.0
_ANY_DEVICE = 0.02
_SPREAD = 0.3
_IDLE_DRAWS = 10_000
_TINY_S = 1e-30


class LocalSearch:
    """Anneals from the best of some starts until its budget is used up.

    A move takes a random cluster of a random level of the hierarchy of `tfplace.group.coarsen`, from single units to
    an eighth of the graph, and puts all of it on the device of a random neighbour, or on a random device. The levels
    drawn from move from coarse to fine over the budget, with a wide spread. Slower placements are accepted with the
    Metropolis probability, at a temperature that falls geometrically over the budget. Placements that do not fit the
    memory may be passed through, at a price. If there are at most 2,000 placements, all of them are tried instead.

    Args:
      starts: [U] placements to start from; by default all of the problem on each device in turn.
      hot: temperature at the start, in step times of the start divided by the number of units: what an average unit
        takes on one device.
      cold: temperature at the end, alike.
    """

    citation = (
        "S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi: Optimization by Simulated Annealing. Science 220, 1983; moves "
        "over a hierarchy after C. Walshaw: Multilevel Refinement for Combinatorial Optimisation Problems. Annals of "
        "Operations Research 131, 2004."
    )

    def __init__(self, starts: Sequence[IntArray] = (), hot: float = 5.0, cold: float = 0.25) -> None:
        self.starts = tuple(starts)
        self.hot = hot
        self.cold = cold

    def place(self, study: Study) -> IntArray:
        """Searches until the study's budget is used up; returns before only if nothing can be moved."""
        starts = self.starts or single_devices(study.problem)
        keys = [study.key(start) for start in starts]
        best = min(range(len(starts)), key=keys.__getitem__)
        if math.prod(study.problem.allowed.sum(axis=1).tolist()) <= _WHOLE_SPACE:
            _try_all(study)
        else:
            _Annealing(study, starts[best].copy(), keys[best]).run(self.hot, self.cold)
        return starts[best] if study.best is None else study.best


def _try_all(study: Study) -> None:
    choices = [np.flatnonzero(row).tolist() for row in study.problem.allowed]
    for each in itertools.product(*choices):
        study.key(np.array(each, np.int32))


class _Annealing:
    """One run from one placement, which changes in place.

    Args:
      study: evaluates.
      devices: [U] where the run starts.
      key: what that costs.
    """

    def __init__(self, study: Study, devices: IntArray, key: Key) -> None:
        problem = study.problem
        self.study = study
        self.devices = devices
        self.scale = key[1]
        # a host's memory, often far larger than what is short, would make all of that look small
        self.limit_bytes = float(problem.memory_limit[compute_devices(problem)].sum())
        self.energy = self._energy(key)
        self.levels = _clusters(problem)
        self.neighbours = _neighbours(problem)
        self.allowed = [np.flatnonzero(row).tolist() for row in problem.allowed]
        compute = set(compute_devices(problem).tolist())
        self.usual = [[d for d in row if d in compute] or row for row in self.allowed]

    def run(self, hot: float, cold: float) -> None:
        """Anneals until the study raises, or nothing has changed in many draws."""
        mean = self.scale / len(self.devices)
        idle = 0
        while idle < _IDLE_DRAWS:
            temperature = mean * hot * (cold / hot) ** self.study.spent
            idle = 0 if self._step(temperature) else idle + 1

    def _step(self, temperature: float) -> bool:
        """Tries one move; False if the draw moves nothing."""
        rng = self.study.rng
        level = self._draw_level()
        cluster = level[int(rng.integers(len(level)))]
        device = self._draw_device(int(cluster[int(rng.integers(len(cluster)))]))
        old = self.devices[cluster]
        if device < 0 or np.all(old == device):
            return False
        self.devices[cluster] = device
        energy = self._energy(self.study.key(self.devices))
        worse = energy - self.energy
        if worse <= 0 or rng.random() < math.exp(-worse / max(temperature, _TINY_S)):
            self.energy = energy
        else:
            self.devices[cluster] = old
        return True

    def _draw_level(self) -> list[LongArray]:
        """A level near the one whose turn it is: the coarsest at first, single units at the end."""
        last = len(self.levels) - 1
        turn = (1.0 - self.study.spent) * last + _SPREAD * len(self.levels) * float(self.study.rng.standard_normal())
        return self.levels[min(max(round(turn), 0), last)]

    def _draw_device(self, unit: int) -> int:
        """A neighbour's device or a random one; -1 if the unit may not be on the neighbour's."""
        rng = self.study.rng
        draw = float(rng.random())
        near = self.neighbours[unit]
        if draw < 0.5 and len(near):
            device = int(self.devices[near[int(rng.integers(len(near)))]])
            return device if device in self.allowed[unit] else -1
        choice = self.allowed[unit] if draw > 1 - _ANY_DEVICE else self.usual[unit]
        return choice[int(rng.integers(len(choice)))]

    def _energy(self, key: Key) -> float:
        """Step seconds, and a price for memory that grows with what is missing, both relative to the start's step."""
        over, step_s = key
        return step_s + (self.scale * (_OVER_S + _OVER_ALL_S * over / self.limit_bytes) if over else 0.0)


def _clusters(problem: Problem) -> list[list[LongArray]]:
    """Per level, from single units up, the units of each cluster."""
    labels = [np.arange(problem.num_units, dtype=np.int32), *hierarchy(problem)]
    return [[np.asarray(units) for units in _members(label)] for label in labels]


def _members(label: IntArray) -> list[LongArray]:
    order: LongArray = np.argsort(label, kind="stable")
    bounds = np.searchsorted(label[order], np.arange(int(label.max()) + 2))
    return [order[a:b] for a, b in itertools.pairwise(bounds)]


def _neighbours(problem: Problem) -> list[IntArray]:
    """[U] for each unit the units it shares an edge with, once per edge."""
    edges = flow(problem)
    src, dst = problem.grouping.unit_of[edges.src], problem.grouping.unit_of[edges.dst]
    apart = src != dst
    ends = np.concatenate([src[apart], dst[apart]])
    others = np.concatenate([dst[apart], src[apart]])
    order = np.argsort(ends, kind="stable")
    bounds = np.searchsorted(ends[order], np.arange(problem.num_units + 1))
    return [others[order[a:b]] for a, b in itertools.pairwise(bounds)]
