"""Search: the one owner of a budget, evaluations, history and best placement."""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.engine import Controllers
from tfplace.core.evaluator import Evaluator
from tfplace.core.problem import Problem
from tfplace.core.search_context import BudgetSpentError, Placer, SearchContext
from tfplace.core.stepcost import SIMULATED, Key
from tfplace.errors import ApplyError, ClusterError, InputError, PlacementError, UnwrittenError, WorkersError
from tfplace.local_search.batches import WHOLE_SPACE, placements
from tfplace.search.budget import Budget
from tfplace.search.budgeted_context import BudgetedContext
from tfplace.search.cache import Cache
from tfplace.search.clock import Clock
from tfplace.search.progress import Improvement, Progress
from tfplace.search.rundir import RunDirectory
from tfplace.simulation.evaluate import Simulator

_PROGRESS_S = 0.2
_MINE = ("evaluations", "best", "over", "step_s", "rng")
_ENDLESS = Budget(evaluations=2**62)

CANNOT_GO_ON = (ApplyError, ClusterError, WorkersError, UnwrittenError)
"""Raised by an evaluator that can tell nothing any more, or when controllers do not come back."""


class Search:
    """The root context: what all shares of one search have in common.

    Args:
      problem: what is placed.
      budget: how long.
      seed: of the random generator.
      progress: called a few times a second, and at the end of a search that is not stopped.
      evaluator: tells what placements cost; by default the simulator.
      run: keeps what is evaluated and found. A search that goes on with a run is told the same again before anything
        is evaluated, if its budget is a number of evaluations: the same seed then makes it the same search. One by the
        clock goes on from the best placement, with what is left of its seconds.
      logged: called with the evaluations so far and what a policy says of its training.
      controllers: train a policy together.

    Attributes:
      evaluations: placements evaluated.
      fitting: the problem as placers see it, without devices on which a unit never fits.
      failed: how many of them did not fit, did not run, or were given up; of this process.
      ran_s: step seconds of all of them that have any; of this process.
      broken: why the evaluator, its controllers or the run's directory could not go on; None while they can.
    """

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        seed: int,
        progress: Callable[[Progress], None] | None = None,
        evaluator: Evaluator | None = None,
        *,
        run: RunDirectory | None = None,
        logged: Callable[[int, Mapping[str, float]], None] | None = None,
        controllers: Controllers | None = None,
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.evaluator = evaluator or Simulator(problem)
        # So few are all tried, which tells what comes nearest if nothing fits.
        few = placements(problem) <= WHOLE_SPACE
        self.fitting: Problem = problem if few else getattr(self.evaluator, "fitting", problem)
        self.rng = np.random.default_rng(seed)
        self._seed = seed
        self.evaluations = 0
        self.failed = 0
        self.ran_s = 0.0
        self.history: list[Improvement] = []
        self.best: IntArray | None = None
        self.best_key: Key | None = None
        self.broken: Exception | None = None
        self.interrupted = False
        self.controllers = controllers
        self._progress = progress
        self._reported = 0.0
        self._run = run
        self._logged = logged
        self._queue: list[IntArray] = []
        # what is simulated is simulated again sooner than it is looked up
        self._cache = None if self.evaluator.source == SIMULATED else Cache(self.evaluator)
        self._before_s = 0.0 if run is None else run.records.seconds
        self._told_s: float | None = None
        self._clock = Clock()
        if run is not None and budget.seconds is not None:
            self._go_on(run)

    def _go_on(self, run: RunDirectory) -> None:
        """From where a run was, without doing it again: what is random is not what it was before."""
        self.evaluations = max(self.evaluations, len(run.records.known))
        run.records.skip(self.evaluations)
        if self.evaluations:
            self.rng = np.random.default_rng([self._seed, self.evaluations])
        if run.best is not None:
            self.best, self.best_key = run.best.unit_device, run.best.key

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of this search, but for those of compiling kernels and between its processes."""
        return self._before_s + self._clock.seconds

    def position(self) -> float:
        """How much of the budget's unit has been used: seconds or evaluations."""
        return self.seconds if self.budget.seconds is not None else float(self.evaluations)

    @property
    def total(self) -> float:
        """The whole budget in that unit."""
        return self.budget.seconds if self.budget.seconds is not None else float(self.budget.evaluations or 0)

    def enqueue(self, unit_device: IntArray) -> None:
        """Has [U] devices evaluated before the placer begins, as a part of the budget.

        Raises:
          PlacementError: not devices that the units may be on.
        """
        self.problem.expand(unit_device)
        self._queue.append(np.array(unit_device, np.int32))

    def ask(self, unit_devices: IntArray, limit_s: float) -> tuple[LongArray, FloatArray]:
        """Keys of the rows of [B, U], told again by the run or else by the evaluator; see `Evaluator.keys`."""
        asked = self._cache or self.evaluator
        return self._through_run(unit_devices, lambda rows: asked.keys(rows, limit_s))

    def ask_one(self, unit_device: IntArray, limit_s: float) -> Key:
        """The key of [U] devices, alike."""
        asked = self._cache or self.evaluator
        if self._run is None:
            return asked.key(unit_device, limit_s)
        over, step_s = self._through_run(unit_device[None], lambda rows: _one(asked.key(rows[0], limit_s)))
        return int(over[0]), float(step_s[0])

    def told(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> tuple[LongArray, FloatArray]:
        """The same keys of rows that somebody else evaluated, or what the run says of them."""
        return self._through_run(unit_devices, lambda rows: (over[-len(rows) :], step_s[-len(rows) :]))

    def _through_run(
        self, unit_devices: IntArray, evaluate: Callable[[IntArray], tuple[LongArray, FloatArray]]
    ) -> tuple[LongArray, FloatArray]:
        if self._run is None:
            return evaluate(unit_devices)
        records = self._run.records
        over, step_s, self._told_s = records.replay(unit_devices)
        if self._cache is not None:
            self._cache.learn(unit_devices[: len(over)], over, step_s)
        if len(over) == len(unit_devices):
            return over, step_s
        self._told_s = None
        rest = unit_devices[len(over) :]
        new = evaluate(rest)
        scale_s = getattr(self.evaluator, "scale_s", None)
        if scale_s is not None:
            self._run.keep_scale(scale_s)
        self._run.add(rest, *new, self.seconds, now=self.evaluator.source != SIMULATED)
        return np.concatenate([over, new[0]]), np.concatenate([step_s, new[1]])

    def record(self, unit_device: IntArray, key: Key, stage: str) -> None:
        """Counts an evaluation and keeps the placement if it is the best.

        Raises:
          PlacementError: it would be, but has a unit where it may not be.
        """
        self.evaluations += 1
        self.failed += key[0] > 0
        self.ran_s += key[1] if math.isfinite(key[1]) else 0.0
        if self.best_key is None or key < self.best_key:
            self.best, self.best_key = self.problem.check(unit_device).copy(), key
            seconds = self.seconds if self._told_s is None else self._told_s
            self.history.append(Improvement(self.evaluations, seconds, key, stage, self.ran_s))
            if self._run is not None:
                self._run.improved(unit_device, key, self.evaluations, seconds, stage)
                if self.evaluator.source != SIMULATED and self._told_s is None:
                    self._run.written(now=True)  # the next one may take minutes
        self._report(stage)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Passes on what a policy says of its training."""
        if self._run is not None:
            self._run.log(self.evaluations, metrics)
        if self._logged is not None and self._told_s is None:
            self._logged(self.evaluations, metrics)

    def save_checkpoint(self, state: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """See `tfplace.core.search_context.SearchContext.keep`."""
        if self._run is None or self.best is None or self.best_key is None or not self._run.keeps_now:
            return
        mine = {
            "evaluations": np.int64(self.evaluations),
            "best": self.best,
            "over": np.int64(self.best_key[0]),
            "step_s": np.float64(self.best_key[1]),
            "rng": np.array(json.dumps(self.rng.bit_generator.state)),
        }
        self._run.save_checkpoint({f"search.{name}": np.asarray(value) for name, value in mine.items()} | dict(state()))

    def load_checkpoint(self, same: bool) -> dict[str, NDArray[Any]] | None:
        """See `tfplace.core.search_context.SearchContext.load_checkpoint`."""
        if self._run is None:
            return None
        kept = self._run.load_checkpoint()
        mine = {name: kept.pop(f"search.{name}") for name in _MINE} if kept is not None else {}
        if self.budget.seconds is not None or not same:
            if len(self._run.records.known):
                self._go_on(self._run)
            return kept
        if kept is None or self.evaluations > int(mine["evaluations"]):
            return None  # or the search has gone past it
        self.rng.bit_generator.state = json.loads(str(mine["rng"]))
        self.evaluations = int(mine["evaluations"])
        self.best, self.best_key = mine["best"], (int(mine["over"]), float(mine["step_s"]))
        self._run.records.skip(self.evaluations)
        return kept

    def _report(self, stage: str, *, last: bool = False) -> None:
        now = self.seconds
        if self._progress is None or (now - self._reported < _PROGRESS_S and not last):
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
          PlacementError: the placer chose no devices that the units may be on.
          InputError: the placer's time was up before it had placed anything.
          KeyboardInterrupt: stopped before any placement was found, or stopped and not interruptible.
          ApplyError, ClusterError, WorkersError, UnwrittenError: the evaluator, its controllers or the run's directory
            cannot go on, and there is no placement that ran, or as above.
        """
        if not self.problem.num_units:  # constants only, which follow one another
            return np.zeros(0, np.int32)
        context = self.context(stage)
        try:
            with contextlib.suppress(BudgetSpentError):
                for known in self._queue:
                    context.key(known)
                chosen = self._better(context, self._checked(placer.place(context), stage))
                self._end(stage)
                return chosen
            if context.best is None:  # though the first evaluation is always allowed
                raise InputError(
                    f"a budget of {self.budget}, in which {stage} placed nothing", "enough for one placement"
                )
            self._end(stage)
            return context.best
        except KeyboardInterrupt:
            self._look_back(context)
            if context.best is None or not interruptible:
                raise
            self.interrupted = True
            return context.best
        except CANNOT_GO_ON as error:
            self._look_back(context)
            if (
                context.best is None
                or context.best_key is None
                or not np.isfinite(context.best_key[1])
                or not interruptible
            ):
                raise
            self.broken = error
            return context.best

    def _checked(self, chosen: IntArray, stage: str) -> IntArray:
        try:
            return self.problem.check(chosen)
        except PlacementError as error:
            raise PlacementError(error.received, error.expected, f"It is what {stage!r} chose.") from error

    def _look_back(self, context: BudgetedContext) -> None:
        """What the run has found counts, also where a search that does it again has not come as far."""
        found = None if self._run is None else self._run.best
        if found is not None and (context.best_key is None or found.key < context.best_key):
            self.best, self.best_key = context.best, context.best_key = found

    def _end(self, stage: str) -> None:
        if self._run is not None:
            self._run.written(now=True)  # here, where it is still known what to do if that fails
        self._report(stage, last=True)

    def _better(self, context: BudgetedContext, chosen: IntArray) -> IntArray:
        """What the placer chose, or what it evaluated if that is better."""
        if context.best is None or np.array_equal(context.best, chosen):
            return chosen
        self.record(chosen, self.ask_one(chosen, math.inf), context.stage)
        assert self.best is not None
        return self.best

    def replica(self) -> Callable[[], SearchContext]:
        """What makes an endless context of the same problem, elsewhere."""
        return functools.partial(_replica, self.evaluator)

    def context(self, stage: str) -> BudgetedContext:
        """A context with the whole budget."""
        context = BudgetedContext(self, self.total, stage)
        context.best, context.best_key = self.best, self.best_key  # of a run that goes on
        return context


def _replica(evaluator: Evaluator) -> SearchContext:
    return Search(evaluator.problem, _ENDLESS, 0, evaluator=evaluator).context("controller")


def _one(key: Key) -> tuple[LongArray, FloatArray]:
    return np.array([key[0]], np.int64), np.array([key[1]])
