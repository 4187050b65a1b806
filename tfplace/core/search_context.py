"""The view of a search that a placer is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.critical_path import CriticalPath
from tfplace.core.engine import Controllers
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key


class BudgetSpentError(Exception):
    """Raised by a context when its budget is used up; what was found so far is kept there."""


class Left(NamedTuple):
    """What is left of a budget; one of the two is None.

    Attributes:
      seconds: wall-clock seconds.
      evaluations: placements.
    """

    seconds: float | None
    evaluations: int | None


class SearchContext(ABC):
    """What a placer is given: the problem, a budget of evaluated placements, and a random generator.

    Attributes:
      best: [U] the best devices evaluated so far in this context, or None.
      best_key: the key of `best`.
    """

    best: IntArray | None
    best_key: Key | None

    @property
    @abstractmethod
    def problem(self) -> Problem:
        """What is to be placed."""

    @property
    @abstractmethod
    def rng(self) -> np.random.Generator:
        """Seeded; a placer draws from nothing else."""

    @abstractmethod
    def key(self, unit_device: IntArray, limit_s: float = np.inf) -> Key:
        """What [U] devices cost, reduced to what placements are compared by; one evaluation of the budget.

        Args:
          unit_device: [U] devices.
          limit_s: a longer step may be given up: its key is then `(FAILED_BYTES, infinite)`, and it is not kept as the
            best. Not to be below the best feasible step if what is better than that should be found.

        Raises:
          BudgetSpentError: nothing is left.
        """

    @abstractmethod
    def keys(self, unit_devices: IntArray, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """Keys of the rows of [B, U]: bytes over the limits and step seconds, on several threads.

        Each row is one evaluation of the budget. If that has evaluations for some rows only, the first ones are
        evaluated and the arrays are that much shorter.

        Raises:
          BudgetSpentError: nothing is left.
        """

    @abstractmethod
    def tell(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> int:
        """Counts the rows of [B, U] as evaluated, with keys that somebody else found, such as a controller.

        Returns:
          How many count: the first ones, if the budget has evaluations for some rows only; by the clock all of them.
        """

    @abstractmethod
    def count(self, evaluations: int) -> None:
        """Counts what workers evaluated for this context, of which they tell the best only; 0 shows the progress."""

    @abstractmethod
    def critical_path(self, unit_device: IntArray) -> CriticalPath | None:
        """What the step with [U] devices waits for, one evaluation of the budget; None if the evaluator cannot tell.

        Raises:
          BudgetSpentError: nothing is left.
        """

    @abstractmethod
    def log(self, metrics: Mapping[str, float]) -> None:
        """Says how a policy's training goes on, at most once between two evaluations."""

    @abstractmethod
    def save_checkpoint(self, state: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """Keeps the state of the search as it is between two evaluations, if it is kept at all.

        Args:
          state: makes what `load_checkpoint` gives back, arrays by name. Called every few seconds only.
        """

    @abstractmethod
    def load_checkpoint(self, *, same: bool = True) -> dict[str, NDArray[Any]] | None:
        """What was kept last of this search; None if nothing was.

        With a budget in evaluations the search is then as it was: budget, generator and best. By the clock, or if not
        the `same` evaluations would follow, it is as it is: everything that was evaluated since counts, and other
        placements are drawn than the last time.

        Args:
          same: whether the same evaluations will follow as the last time.
        """

    @property
    @abstractmethod
    def controllers(self) -> Controllers | None:
        """Who trains a policy together; None if that is for this process alone."""

    @abstractmethod
    def replica(self) -> Callable[[], SearchContext]:
        """What makes a context of the same problem in another process, without a budget, whose results are its own."""

    @property
    @abstractmethod
    def bound_s(self) -> float:
        """No placement's seconds can be lower; 0 if nothing is known."""

    @property
    @abstractmethod
    def objective(self) -> str:
        """What keys count: `tfplace.core.stepcost.STEP_TIME`, or the largest load in a pipeline, `THROUGHPUT`."""

    @property
    @abstractmethod
    def plain(self) -> bool:
        """Whether keys are what the simulator says by default: what is proven of its model then holds for them."""

    @property
    @abstractmethod
    def left(self) -> Left:
        """What is left of the budget, for placers that hand it on."""

    @property
    @abstractmethod
    def evaluations(self) -> int:
        """Placements evaluated so far, in the whole search."""

    @property
    @abstractmethod
    def spent(self) -> float:
        """Fraction of the budget used, from 0 to 1."""

    @abstractmethod
    def share(self, fraction: float, stage: str, most: int | None = None) -> SearchContext:
        """A context of the same problem with a part of what is left of this one's budget.

        What it finds is found for this context too. Its `best` starts empty.

        Args:
          fraction: of the remaining budget.
          stage: name under which its improvements are logged.
          most: evaluations that it has at most.
        """

    @abstractmethod
    def apart(self, left: Left, seed: int, span: tuple[float, float] = (0.0, 1.0)) -> SearchContext:
        """A context of the same problem with a budget, a generator and results of its own.

        Args:
          left: its budget.
          seed: of its generator.
          span: what `spent` says at its begin and at its end, where it is a part of something longer.
        """


def best_of(context: SearchContext) -> IntArray:
    """[U] the best of a context.

    Raises:
      BudgetSpentError: its budget was used up before anything was evaluated.
    """
    if context.best is None:
        raise BudgetSpentError
    return context.best
