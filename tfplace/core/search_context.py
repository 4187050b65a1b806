"""What a placer is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

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


class SearchContext(Protocol):
    """What a placer is given: the problem, a budget of simulated placements, and a random generator."""

    @property
    def problem(self) -> Problem:
        """What is to be placed."""

    @property
    def rng(self) -> np.random.Generator:
        """Seeded; a placer draws from nothing else."""

    def key(self, unit_device: IntArray, limit_s: float = ...) -> Key:
        """What [U] devices cost, reduced to what placements are compared by; one evaluation of the budget.

        Args:
          unit_device: [U] devices.
          limit_s: a longer step may be given up: its key is then `(FAILED_BYTES, infinite)`, and it is not kept as the
            best. Not to be below the best feasible step if what is better than that should be found.

        Raises:
          BudgetSpentError: nothing is left.
        """

    def keys(self, unit_devices: IntArray, limit_s: float = ...) -> tuple[LongArray, FloatArray]:
        """Keys of the rows of [B, U]: bytes over the limits and step seconds, on several threads.

        Each row is one evaluation of the budget. If that has evaluations for some rows only, the first ones are
        evaluated and the arrays are that much shorter.

        Raises:
          BudgetSpentError: nothing is left.
        """

    def tell(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> int:
        """Counts the rows of [B, U] as evaluated, with keys that somebody else found, such as a controller.

        Returns:
          How many count: the first ones, if the budget has evaluations for some rows only; by the clock all of them.
        """

    def critical_path(self, unit_device: IntArray) -> CriticalPath | None:
        """What the step with [U] devices waits for, one evaluation of the budget; None if the evaluator cannot tell.

        Raises:
          BudgetSpentError: nothing is left.
        """

    def log(self, metrics: Mapping[str, float]) -> None:
        """Says how a policy's training goes on, at most once between two evaluations."""

    def save_checkpoint(self, state: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """Keeps the state of the search as it is between two evaluations, if it is kept at all.

        Args:
          state: makes what `load_checkpoint` gives back, arrays by name. Called every few seconds only.
        """

    def load_checkpoint(self, *, same: bool = True) -> dict[str, NDArray[Any]] | None:
        """What was kept last of this search; None if nothing was.

        With a budget in evaluations the search is then as it was: budget, generator and best. By the clock, or if not
        the `same` evaluations would follow, it is as it is: everything that was evaluated since counts, and other
        placements are drawn than the last time.

        Args:
          same: whether the same evaluations will follow as the last time.
        """

    @property
    def controllers(self) -> Controllers | None:
        """Who trains a policy together; None if that is for this process alone."""

    def replica(self) -> Callable[[], SearchContext]:
        """What makes a context of the same problem in another process, without a budget, whose results are its own."""

    @property
    def bound_s(self) -> float:
        """No placement's seconds can be lower; 0 if nothing is known."""

    @property
    def objective(self) -> str:
        """What keys count: `tfplace.core.stepcost.STEP_TIME`, or the largest load in a pipeline, `THROUGHPUT`."""

    @property
    def plain(self) -> bool:
        """Whether keys are what the simulator says by default: what is proven of its model then holds for them."""

    @property
    def left(self) -> Left:
        """What is left of the budget, for placers that hand it on."""

    @property
    def evaluations(self) -> int:
        """Placements evaluated so far, in the whole search."""

    @property
    def best(self) -> IntArray | None:
        """[U] the best devices evaluated so far in this context, or None."""

    @property
    def best_key(self) -> Key | None:
        """The key of `best`."""

    @property
    def spent(self) -> float:
        """Fraction of the budget used, from 0 to 1."""

    def share(self, fraction: float, stage: str, most: int | None = None) -> SearchContext:
        """A context of the same problem with a part of what is left of this one's budget.

        What it finds is found for this context too. Its `best` starts empty.

        Args:
          fraction: of the remaining budget.
          stage: name under which its improvements are logged.
          most: evaluations that it has at most.
        """


class Placer(Protocol):
    """A placement method.

    Attributes:
      citation: where the method comes from.

    One that goes on from placements has `starts`, a policy `learned = True`, a policy that places at once without
    TensorFlow `plain_at_once = True`, one that controllers can train together `has_controllers = True`.
    """

    citation: str

    def place(self, context: SearchContext) -> IntArray:
        """[U] a device for each unit; need not fit the memory if nothing that does was found.

        If the context has seen a better one, that one counts.

        Raises:
          BudgetSpentError: from the context; its best placement then counts.
        """


def best_of(context: SearchContext) -> IntArray:
    """[U] the best of a context.

    Raises:
      BudgetSpentError: its budget was used up before anything was evaluated.
    """
    if context.best is None:
        raise BudgetSpentError
    return context.best
