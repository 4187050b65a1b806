"""Study: the one owner of a search's budget, evaluations, history and best placement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.problem import Problem
from tfplace.core.stepcost import MEASURED, SIMULATED, STEP_TIME, Key, StepCost
from tfplace.errors import ApplyError, ClusterError
from tfplace.search.budget import Budget
from tfplace.search.clock import Clock
from tfplace.simulate.evaluate import Simulator
from tfplace.simulate.options import DEFAULT
from tfplace.study.base import BudgetSpentError, Left, Placer

_PROGRESS_S = 0.2

CANNOT_GO_ON = (ApplyError, ClusterError)
"""What an evaluator raises that can tell nothing any more, such as when its workers do not come back."""


@dataclass(frozen=True)
class Improvement:
    """A placement that was better than all before it.

    Attributes:
      evaluations: how many placements had been evaluated by then.
      seconds: how long the search had run.
      key: what it costs.
      stage: the part of the search that found it.
    """

    evaluations: int
    seconds: float
    key: Key
    stage: str


@dataclass(frozen=True)
class Progress:
    """Where a search stands, for progress bars.

    Attributes:
      evaluations: placements evaluated.
      seconds: since the start; see `Clock`.
      fraction: of the budget used, from 0 to 1.
      best_s: step seconds of the best placement, or None.
      fits: whether it fits every device's memory.
      stage: the part of the search at work.
      source: who evaluates: "simulated", "grappler" or "measured".
    """

    evaluations: int
    seconds: float
    fraction: float
    best_s: float | None
    fits: bool
    stage: str
    source: str = SIMULATED


class Search:
    """The root study: what all shares of one search have in common.

    Args:
      problem: what is placed.
      budget: how long.
      seed: of the random generator.
      progress: called a few times a second.
      evaluator: tells what placements cost; by default the simulator.

    Attributes:
      broken: why the evaluator could not go on; None while it can.
    """

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        seed: int,
        progress: Callable[[Progress], None] | None = None,
        evaluator: Evaluator | None = None,
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.evaluator = evaluator or Simulator(problem)
        self.rng = np.random.default_rng(seed)
        self.evaluations = 0
        self.history: list[Improvement] = []
        self.best: IntArray | None = None
        self.best_key: Key | None = None
        self.broken: Exception | None = None
        self._progress = progress
        self._reported = 0.0
        self._clock = Clock()

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the start, but for those of compiling kernels."""
        return self._clock.seconds

    def position(self) -> float:
        """How much of the budget's unit has been used: seconds or evaluations."""
        return self.seconds if self.budget.seconds is not None else float(self.evaluations)

    @property
    def total(self) -> float:
        """The whole budget in that unit."""
        return self.budget.seconds if self.budget.seconds is not None else float(self.budget.evaluations or 0)

    def record(self, unit_device: IntArray, key: Key, stage: str) -> None:
        """Counts an evaluation and keeps the placement if it is the best."""
        self.evaluations += 1
        if self.best_key is None or key < self.best_key:
            self.best, self.best_key = unit_device.copy(), key
            self.history.append(Improvement(self.evaluations, self.seconds, key, stage))
        self._report(stage)

    def _report(self, stage: str) -> None:
        now = self.seconds
        if self._progress is None or now - self._reported < _PROGRESS_S:
            return
        self._reported = now
        over, best = self.best_key or (0, None)
        fraction = min(self.position() / self.total, 1.0)
        self._progress(Progress(self.evaluations, now, fraction, best, over == 0, stage, self.evaluator.source))

    def run(self, placer: Placer, stage: str, *, interruptible: bool = True) -> IntArray:
        """[U] the placer's answer; the best it evaluated if its budget ran out or the user or the evaluator stopped it.

        Args:
          placer: what is run.
          stage: logged with its improvements.
          interruptible: whether what stops this stops only this, and not what it is a part of.

        Raises:
          KeyboardInterrupt: stopped before any placement was found, or stopped and not interruptible.
          ApplyError, ClusterError: the evaluator cannot go on, and there is no placement that ran, or as above.
        """
        if not self.problem.num_units:  # constants only, which follow one another
            return np.zeros(0, np.int32)
        study = self.study(stage)
        try:
            chosen = placer.place(study)
        except BudgetSpentError:
            if study.best is None:
                raise
            return study.best
        except KeyboardInterrupt:
            if study.best is None or not interruptible:
                raise
            return study.best
        except CANNOT_GO_ON as error:
            if study.best is None or study.best_key is None or not np.isfinite(study.best_key[1]) or not interruptible:
                raise
            self.broken = error
            return study.best
        return np.asarray(chosen, np.int32)

    def study(self, stage: str) -> SearchStudy:
        """A study with the whole budget."""
        return SearchStudy(self, self.total, stage)


class SearchStudy:
    """A study, or a share of one; implements `tfplace.study.base.Study`.

    Args:
      search: what all shares have in common.
      until: position of the search at which this share's budget is used up.
      stage: logged with its improvements.
      parents: studies whose `best` takes in what this one finds.
    """

    def __init__(self, search: Search, until: float, stage: str, parents: Sequence[SearchStudy] = ()) -> None:
        self._search = search
        self._from = search.position()
        self._until = until
        self._stage = stage
        self._line = (self, *parents)
        self.best: IntArray | None = None
        self.best_key: Key | None = None

    @property
    def problem(self) -> Problem:
        """What is placed."""
        return self._search.problem

    @property
    def rng(self) -> np.random.Generator:
        """The search's generator."""
        return self._search.rng

    @property
    def spent(self) -> float:
        """Fraction of this study's budget used, from 0 to 1."""
        span = self._until - self._from
        return min((self._search.position() - self._from) / span, 1.0) if span > 0 else 1.0

    def share(self, fraction: float, stage: str) -> SearchStudy:
        """A study with `fraction` of what is left of this one's budget; see `tfplace.study.base.Study`."""
        here = self._search.position()
        until = here + fraction * (self._until - here)
        if self._search.budget.evaluations is not None:
            until = min(max(round(until), here + 1), self._until)
        return SearchStudy(self._search, until, stage, self._line)

    def evaluate(self, unit_device: IntArray) -> StepCost:
        """The cost of [U] devices.

        Raises:
          BudgetSpentError: nothing of this study's budget is left.
        """
        self._check()
        cost = self._search.evaluator(unit_device)
        self._record(unit_device, cost.key)
        return cost

    @property
    def bound_s(self) -> float:
        """No placement's seconds can be lower; see `Evaluator.bound_s`."""
        return self._search.evaluator.bound_s

    @property
    def objective(self) -> str:
        """What keys count; of evaluators that do not say it is the step time."""
        return str(getattr(self._search.evaluator, "objective", STEP_TIME))

    @property
    def plain(self) -> bool:
        """Whether the evaluator simulates, with default options; see `tfplace.study.base.Study`."""
        evaluator = self._search.evaluator
        return evaluator.source == SIMULATED and getattr(evaluator, "options", DEFAULT) == DEFAULT

    @property
    def left(self) -> Left:
        """What is left of this study's budget."""
        rest = max(self._until - self._search.position(), 0.0)
        return Left(rest, None) if self._search.budget.seconds is not None else Left(None, round(rest))

    def key(self, unit_device: IntArray, limit_s: float = np.inf) -> Key:
        """`evaluate(...).key`, quicker; see `tfplace.study.base.Study`.

        Raises:
          BudgetSpentError: nothing of this study's budget is left.
        """
        self._check()
        key = self._search.evaluator.key(unit_device, limit_s)
        self._record(unit_device, key)
        return key

    def keys(self, unit_devices: IntArray, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """Keys of the rows of [B, U]; see `tfplace.study.base.Study`.

        Raises:
          BudgetSpentError: nothing of this study's budget is left.
        """
        self._check()
        if self._search.budget.evaluations is not None:
            unit_devices = unit_devices[: max(round(self._until - self._search.position()), 1)]
        if self._search.evaluator.source == MEASURED:
            return self._one_by_one(unit_devices, limit_s)
        over, step_s = self._search.evaluator.keys(unit_devices, limit_s)
        for row, key in zip(unit_devices, zip(over.tolist(), step_s.tolist(), strict=True), strict=True):
            self._record(row, key)
        return over, step_s

    def _one_by_one(self, unit_devices: IntArray, limit_s: float) -> tuple[LongArray, FloatArray]:
        """Measuring is slow, and may be interrupted or break down: what was measured by then is recorded."""
        keys = [self.key(row, limit_s) for row in unit_devices]
        return np.array([over for over, _ in keys], np.int64), np.array([step_s for _, step_s in keys])

    def _check(self) -> None:
        # The first evaluation is always allowed, so that the smallest budget still ends in a placement.
        if self._search.position() >= self._until and self._search.evaluations:
            raise BudgetSpentError

    def _record(self, unit_device: IntArray, key: Key) -> None:
        self._search.record(unit_device, key, self._stage)
        for study in self._line:
            if study.best_key is None or key < study.best_key:
                study.best, study.best_key = unit_device.copy(), key
