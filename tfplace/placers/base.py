"""What a placer is, and the little that all of them share."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key, StepCost
from tfplace.group.coarsen import hierarchy
from tfplace.group.merge import merge_units, renumber
from tfplace.group.unit_graph import variable_bytes


class BudgetSpentError(Exception):
    """Raised by a study when its budget is used up; what was found so far is kept there."""


class Left(NamedTuple):
    """What is left of a budget; one of the two is None.

    Attributes:
      seconds: wall-clock seconds.
      evaluations: placements.
    """

    seconds: float | None
    evaluations: int | None


class Study(Protocol):
    """What a placer is given: the problem, a budget of simulated placements, and a random generator."""

    @property
    def problem(self) -> Problem:
        """What is to be placed."""

    @property
    def rng(self) -> np.random.Generator:
        """Seeded; a placer draws from nothing else."""

    def evaluate(self, unit_device: IntArray) -> StepCost:
        """The simulated cost of [U] devices; one evaluation of the budget.

        Raises:
          BudgetSpentError: nothing is left.
        """

    def key(self, unit_device: IntArray, limit_s: float = ...) -> Key:
        """The same, reduced to what placements are compared by; quicker.

        Args:
          unit_device: [U] devices.
          limit_s: a longer step may be given up: its key is then `(FAILED_BYTES, infinite)`, and it is not kept as the
            best. Not to be below the best feasible step if what is better than that should be found.
        """

    def keys(self, unit_devices: IntArray, limit_s: float = ...) -> tuple[LongArray, FloatArray]:
        """Keys of the rows of [B, U]: bytes over the limits and step seconds, on several threads.

        Each row is one evaluation of the budget. If that has evaluations for some rows only, the first ones are
        evaluated and the arrays are that much shorter.

        Raises:
          BudgetSpentError: nothing is left.
        """

    @property
    def bound_s(self) -> float:
        """No placement's seconds can be lower; 0 if nothing is known."""

    @property
    def objective(self) -> str:
        """What keys count: `tfplace.core.stepcost.STEP_TIME`, or the largest load in a pipeline, `THROUGHPUT`."""

    @property
    def left(self) -> Left:
        """What is left of the budget, for placers that hand it on."""

    @property
    def best(self) -> IntArray | None:
        """[U] the best devices evaluated so far in this study, or None."""

    @property
    def best_key(self) -> Key | None:
        """The key of `best`."""

    @property
    def spent(self) -> float:
        """Fraction of the budget used, from 0 to 1."""

    def share(self, fraction: float, stage: str) -> Study:
        """A study of the same problem with a part of what is left of this one's budget.

        What it finds is found for this study too. Its `best` starts empty.

        Args:
          fraction: of the remaining budget.
          stage: name under which its improvements are logged.
        """


class Placer(Protocol):
    """A placement method.

    Attributes:
      citation: where the method comes from.
    """

    citation: str

    def place(self, study: Study) -> IntArray:
        """[U] a device for each unit; need not fit the memory if nothing that does was found.

        Raises:
          BudgetSpentError: from the study; its best placement then counts.
        """


class Grouped:
    """A study of the same search in which whole groups of units are placed; itself a `Study`.

    Its problem has the groups as units. What it evaluates counts for the study it is made from, unit by unit.

    Args:
      study: of the ungrouped problem.
      label: [U] group of each unit, numbered from 0 by first unit; units of one group share an allowed device.
    """

    def __init__(self, study: Study, label: IntArray) -> None:
        self.problem = merge_units(study.problem, label)
        self.best: IntArray | None = None
        self.best_key: Key | None = None
        self._study = study
        self._label = label
        self._line: tuple[Grouped, ...] = (self,)

    @property
    def rng(self) -> np.random.Generator:
        """The study's generator."""
        return self._study.rng

    @property
    def spent(self) -> float:
        """Fraction of the study's budget used."""
        return self._study.spent

    @property
    def bound_s(self) -> float:
        """The ungrouped problem's, which groups cannot beat either."""
        return self._study.bound_s

    @property
    def objective(self) -> str:
        """The study's."""
        return self._study.objective

    @property
    def left(self) -> Left:
        """What is left of the study's budget."""
        return self._study.left

    def evaluate(self, unit_device: IntArray) -> StepCost:
        """See `Study.evaluate`; [G] devices."""
        cost = self._study.evaluate(unit_device[self._label])
        self._keep(unit_device, cost.key)
        return cost

    def key(self, unit_device: IntArray, limit_s: float = np.inf) -> Key:
        """See `Study.key`; [G] devices."""
        key = self._study.key(unit_device[self._label], limit_s)
        self._keep(unit_device, key)
        return key

    def keys(self, unit_devices: IntArray, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """See `Study.keys`; [B, G] devices."""
        over, step_s = self._study.keys(np.ascontiguousarray(unit_devices[:, self._label]), limit_s)
        if len(over):
            first = int(np.lexsort((step_s, over))[0])
            self._keep(unit_devices[first], (int(over[first]), float(step_s[first])))
        return over, step_s

    def share(self, fraction: float, stage: str) -> Grouped:
        """See `Study.share`."""
        part = copy.copy(self)  # of the same groups, which are not merged again
        part.best = part.best_key = None
        part._study = self._study.share(fraction, stage)
        part._line = (part, *self._line)
        return part

    def ungroup(self, group_device: IntArray) -> IntArray:
        """[G] devices of groups -> [U] devices of the study's units."""
        return group_device[self._label]

    def group(self, unit_device: IntArray) -> IntArray:
        """[U] devices of the study's units -> [G]: of those a group may be on, where its units spend most seconds.

        Where they take none, it is where most of them are.
        """
        units = self._study.problem
        mean = np.nanmean(np.where(np.isfinite(units.unit_seconds), units.unit_seconds, np.nan), axis=1)
        seconds = np.where(self.problem.allowed, 0.0, -np.inf)
        np.add.at(seconds, (self._label, unit_device), mean + np.finfo(np.float64).tiny)
        return np.asarray(seconds.argmax(axis=1), np.int32)

    def _keep(self, unit_device: IntArray, key: Key) -> None:
        for study in self._line:
            if study.best_key is None or key < study.best_key:
                study.best, study.best_key = unit_device.copy(), key


def compute_devices(problem: Problem) -> IntArray:
    """Devices that work is spread over: the accelerators, or all devices if there are none.

    A host CPU beside accelerators is a last resort: for ops without a kernel elsewhere, and for memory.
    """
    types = [d.type for d in problem.topology.devices]
    accelerators = [i for i, t in enumerate(types) if t != "CPU"]
    return np.array(accelerators or range(len(types)), np.int32)


def unit_persistent_bytes(problem: Problem) -> FloatArray:
    """[U] bytes of the variables of each unit."""
    return variable_bytes(problem)


def settle(problem: Problem, wanted: IntArray) -> IntArray:
    """[U] the wanted devices, but where a unit may not be there, the fastest device it may be on.

    Of devices equally fast accelerators come first, then the lower index.
    """
    fastest = problem.unit_seconds.argmin(axis=1).astype(np.int32)
    fits = problem.allowed[np.arange(problem.num_units), wanted]
    return np.where(fits, wanted, fastest).astype(np.int32)


def single_device(problem: Problem, device: int) -> IntArray:
    """[U] everything that may be on `device` there."""
    return settle(problem, np.full(problem.num_units, device, np.int32))


def single_devices(problem: Problem) -> list[IntArray]:
    """[D] of [U]: everything on one device, for each device, that with the least compute seconds first."""
    order = np.argsort(problem.costs.compute_s.sum(axis=0), kind="stable")
    return [single_device(problem, d) for d in order.tolist()]


# ---- what searches share ---------------------------------------------------------------------------------------------

WHOLE_SPACE = 2000
"""A search tries all placements if there are no more than this many."""

_HOST_SHARE = 0.01
_OVER_S = 0.01
_OVER_ALL_S = 2.0
_FIRST_ROWS, _MOST_ROWS = 4, 256
_LARGE_PART = 0.01


class Price:
    """One number for a key, in seconds, so that a search can pass through placements that do not fit the memory.

    It is the step's seconds, and for what does not fit a price that grows with the bytes missing, relative to the step
    of the placement the search starts from.

    Args:
      problem: what is placed.
      start: the key of the placement the search starts from.
    """

    def __init__(self, problem: Problem, start: Key) -> None:
        self.scale_s = start[1] if math.isfinite(start[1]) else float(problem.unit_seconds.min(axis=1).sum())
        # a host's memory, often far larger than what is short, would make all of that look small
        self._limit_bytes = max(float(problem.memory_limit[compute_devices(problem)].sum()), 1.0)

    def __call__(self, key: Key) -> float:
        """Seconds a key counts as."""
        over, step_s = key
        return step_s + (self.scale_s * (_OVER_S + _OVER_ALL_S * over / self._limit_bytes) if over else 0.0)

    def rows(self, over: LongArray, step_s: FloatArray) -> FloatArray:
        """[B] the same of `Study.keys`."""
        missing = self.scale_s * (_OVER_S + _OVER_ALL_S * over / self._limit_bytes)
        return np.asarray(step_s + np.where(over > 0, missing, 0.0), np.float64)


def begin(study: Study, starts: Sequence[IntArray]) -> tuple[IntArray, Key, Price]:
    """Evaluates the placements a search may start from, at least one: the best, its key, and prices relative to it."""
    keys = [study.key(start) for start in starts]
    best = min(range(len(starts)), key=keys.__getitem__)
    return starts[best], keys[best], Price(study.problem, keys[best])


def limit_for(study: Study, most_s: float) -> float:
    """The `limit_s` for a search that accepts up to `most_s`: never so low that the best placement could be missed."""
    if study.best_key is None or study.best_key[0]:
        return math.inf  # a long step that misses fewer bytes would be the best
    return max(most_s, study.best_key[1])


def all_keys(study: Study, unit_devices: IntArray, limit_s: float = math.inf) -> tuple[LongArray, FloatArray]:
    """`Study.keys` of all rows of [B, U], in parts that are small where a budget in seconds could be overrun by much.

    Raises:
      BudgetSpentError: the budget does not suffice for all rows; what it sufficed for is kept.
    """
    over, step_s = [np.zeros(0, np.int64)], [np.zeros(0)]
    first, size = 0, _FIRST_ROWS
    while first < len(unit_devices):
        before = study.spent
        part = study.keys(unit_devices[first : first + size], limit_s)
        over.append(part[0])
        step_s.append(part[1])
        first += len(part[0])
        size = max(size // 2, 1) if study.spent - before > _LARGE_PART else min(2 * size, _MOST_ROWS)
    return np.concatenate(over), np.concatenate(step_s)


def try_all(study: Study) -> bool:
    """Evaluates every placement if the budget suffices for all and there are at most `WHOLE_SPACE`.

    Each unit's fastest device comes first.

    Returns:
      Whether it did.
    """
    problem, evaluations = study.problem, study.left.evaluations
    space = math.prod(problem.allowed.sum(axis=1).tolist())
    if space > WHOLE_SPACE or (evaluations is not None and evaluations < space):
        return False
    order = np.argsort(problem.unit_seconds, axis=1, kind="stable")
    choices = [row[:n].tolist() for row, n in zip(order, problem.allowed.sum(axis=1).tolist(), strict=True)]
    rows = np.array([*itertools.product(*choices)], np.int32)
    before = study.spent
    study.key(rows[0])
    if evaluations is None and (study.spent - before) * (len(rows) - 1) > 1 - study.spent:
        return False
    all_keys(study, rows[1:])
    return True


def device_share(problem: Problem) -> FloatArray:
    """[U, D] with what probability a blind draw puts each unit on each device; 0 where it may not be.

    The accelerators are equally likely. A host beside them is drawn a hundredth as often, or always by units that may
    be nowhere else.
    """
    weight = np.full(problem.num_devices, _HOST_SHARE)
    weight[compute_devices(problem)] = 1.0
    share = problem.allowed * weight
    normal: FloatArray = share / share.sum(axis=1, keepdims=True)
    return normal


def pick(keys: FloatArray, share: FloatArray) -> IntArray:
    """[B, U] devices: in which of the intervals that the shares cut out of [0, 1) each key lies.

    Args:
      keys: [B, U] numbers of at least 0 and below 1; random ones draw devices with the shares as probabilities.
      share: [U, D] lengths of the intervals, in proportion.
    """
    top = np.cumsum(share, axis=1)
    top /= top[:, -1:]
    devices = np.zeros(keys.shape, np.int32)
    for d in range(share.shape[1] - 1):
        devices += keys >= top[:, d]
    return devices


def nested_groups(problem: Problem, counts: Sequence[int]) -> list[IntArray]:
    """Groups of units from coarse to fine, each level's groups made of groups of the next.

    Args:
      problem: what is placed.
      counts: for each the finest level of `tfplace.group.coarsen.hierarchy` with at most so many groups is taken, or
        its coarsest if all have more. Equal ones are taken once. All but the last have at most a third as many groups
        as there are units, so that small graphs have something coarse too.

    Returns:
      [U] the group of each unit, numbered by first unit, per level.
    """
    levels = [np.arange(problem.num_units, dtype=np.int32), *hierarchy(problem)]
    sizes = [int(label.max()) + 1 for label in levels]
    most = [*(min(count, problem.num_units // 3) for count in counts[:-1]), counts[-1]]
    wanted = {next((i for i, size in enumerate(sizes) if size <= count), len(sizes) - 1) for count in most}
    return [renumber(levels[i]) for i in sorted(wanted, reverse=True)]
