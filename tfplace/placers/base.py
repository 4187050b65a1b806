"""What a placer is, and the little that all of them share."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key, StepCost
from tfplace.group.merge import merge_units


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
        return Grouped(self._study.share(fraction, stage), self._label)

    def ungroup(self, group_device: IntArray) -> IntArray:
        """[G] devices of groups -> [U] devices of the study's units."""
        return group_device[self._label]

    def _keep(self, unit_device: IntArray, key: Key) -> None:
        if self.best_key is None or key < self.best_key:
            self.best, self.best_key = unit_device.copy(), key


def compute_devices(problem: Problem) -> IntArray:
    """Devices that work is spread over: the accelerators, or all devices if there are none.

    A host CPU beside accelerators is a last resort: for ops without a kernel elsewhere, and for memory.
    """
    types = [d.type for d in problem.topology.devices]
    accelerators = [i for i, t in enumerate(types) if t != "CPU"]
    return np.array(accelerators or range(len(types)), np.int32)


def unit_persistent_bytes(problem: Problem) -> FloatArray:
    """[U] bytes of the variables of each unit."""
    inside = problem.grouping.unit_of >= 0
    out = np.zeros(problem.num_units)
    np.add.at(out, problem.grouping.unit_of[inside], problem.graph.persistent_bytes[inside])
    return out


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
