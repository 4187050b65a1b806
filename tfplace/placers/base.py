"""What a placer is, and the little that all of them share."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key, StepCost


class BudgetSpentError(Exception):
    """Raised by a study when its budget is used up; what was found so far is kept there."""


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

    def key(self, unit_device: IntArray) -> Key:
        """The same, reduced to what placements are compared by; quicker."""

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
