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
    """Raised by a context when its budget is used up. The context keeps the best placement so far."""


class Left(NamedTuple):
    """The remaining budget. One of the two fields is None.

    Attributes:
      seconds: wall-clock seconds.
      evaluations: number of placements.
    """

    seconds: float | None
    evaluations: int | None


class SearchContext(ABC):
    """What a placer is given: the problem, a budget of evaluations, and a random generator.

    Attributes:
      best: [U] devices of the best placement evaluated so far in this context; None before the first evaluation.
      best_key: the key of `best`.
    """

    best: IntArray | None
    best_key: Key | None

    @property
    @abstractmethod
    def problem(self) -> Problem:
        """The problem to place."""

    @property
    @abstractmethod
    def rng(self) -> np.random.Generator:
        """The seeded random generator. A placer must not use any other source of randomness."""

    @abstractmethod
    def key(self, unit_device: IntArray, limit_s: float = np.inf) -> Key:
        """Evaluates one placement and returns its key, by which placements are compared. Uses one evaluation.

        Args:
          unit_device: [U] devices.
          limit_s: the evaluator may give up on a step that takes longer. The key is then `(FAILED_BYTES, infinite)`,
            and it does not become the best. To find every improvement, do not set this below the best feasible step.

        Raises:
          BudgetSpentError: the budget is used up.
        """

    @abstractmethod
    def keys(self, unit_devices: IntArray, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """Evaluates the rows of [B, U], on several threads, and returns bytes over the limits [B] and step seconds [B].

        Each row uses one evaluation of the budget. If the budget does not suffice for all rows, only the first ones are
        evaluated, and the arrays are shorter accordingly.

        Args:
          unit_devices: [B, U] devices.
          limit_s: as in `key`.

        Raises:
          BudgetSpentError: the budget is used up.
        """

    @abstractmethod
    def tell(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> int:
        """Records placements that were evaluated elsewhere, for example by a controller.

        Args:
          unit_devices: [B, U] devices.
          over: [B] bytes over the limits.
          step_s: [B] step seconds.

        Returns:
          How many rows were recorded. With a budget in evaluations, only the first rows for which it suffices; with a
          time budget, all of them.
        """

    @abstractmethod
    def count(self, evaluations: int) -> None:
        """Adds evaluations by workers, which report only their best placement. 0 only updates the progress display."""

    @abstractmethod
    def critical_path(self, unit_device: IntArray) -> CriticalPath | None:
        """The critical path of the step with [U] devices; None if the evaluator does not know it. Uses one evaluation.

        Raises:
          BudgetSpentError: the budget is used up.
        """

    @abstractmethod
    def log(self, metrics: Mapping[str, float]) -> None:
        """Logs metrics of a policy's training. Call it at most once between two evaluations."""

    @abstractmethod
    def save_checkpoint(self, state: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """Saves the state of the search between two evaluations, if the search has a checkpoint directory.

        Args:
          state: returns the arrays by name that `load_checkpoint` will return. It is called only every few seconds.
        """

    @abstractmethod
    def load_checkpoint(self, *, same: bool = True) -> dict[str, NDArray[Any]] | None:
        """Returns the last saved state of this search, arrays by name; None if there is none.

        With a budget in evaluations and `same`, it also restores the budget, the generator and the best placement of
        that moment. Otherwise all evaluations since the checkpoint count too, and the generator draws other placements
        than last time.

        Args:
          same: whether the placer will repeat the evaluations that followed the checkpoint.
        """

    @property
    @abstractmethod
    def controllers(self) -> Controllers | None:
        """The processes that train a policy together; None if this process trains alone."""

    @abstractmethod
    def replica(self) -> Callable[[], SearchContext]:
        """Returns a function that makes a context of the same problem in another process.

        That context has no budget, and its results are not recorded in this one.
        """

    @property
    @abstractmethod
    def bound_s(self) -> float:
        """Lower bound of the seconds of all placements; 0 if none is known."""

    @property
    @abstractmethod
    def objective(self) -> str:
        """What the seconds of keys are: `STEP_TIME`, or `THROUGHPUT` for the largest load of a full pipeline."""

    @property
    @abstractmethod
    def plain(self) -> bool:
        """Whether keys come from the simulator with default options, so that proofs about its model hold for them."""

    @property
    @abstractmethod
    def left(self) -> Left:
        """The remaining budget, for placers that pass it on."""

    @property
    @abstractmethod
    def evaluations(self) -> int:
        """Number of placements evaluated so far in the whole search."""

    @property
    @abstractmethod
    def spent(self) -> float:
        """Fraction of the budget used, from 0 to 1."""

    @abstractmethod
    def share(self, fraction: float, stage: str, most: int | None = None) -> SearchContext:
        """Makes a context of the same problem with a part of this context's remaining budget.

        Its results also count in this context. Its `best` starts empty.

        Args:
          fraction: part of the remaining budget.
          stage: name under which its improvements are logged.
          most: its limit of evaluations; None for no limit besides the budget.
        """

    @abstractmethod
    def apart(self, left: Left, seed: int, span: tuple[float, float] = (0.0, 1.0)) -> SearchContext:
        """Makes a context of the same problem with its own budget, generator and results.

        Args:
          left: its budget.
          seed: seed of its generator.
          span: values of its `spent` at the start and at the end, if it is a part of a longer run.
        """


def best_of(context: SearchContext) -> IntArray:
    """[U] devices of the best placement of a context.

    Raises:
      BudgetSpentError: the budget was used up before any evaluation.
    """
    if context.best is None:
        raise BudgetSpentError
    return context.best
