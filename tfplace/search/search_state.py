"""The state of one search: what its contexts share."""

from __future__ import annotations

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
from tfplace.core.stepcost import SIMULATED, Key
from tfplace.local_search.batches import WHOLE_SPACE, placements
from tfplace.search.budget import Budget
from tfplace.search.cache import Cache
from tfplace.search.clock import Clock
from tfplace.search.progress import Improvement, Progress
from tfplace.search.rundir import RunDirectory
from tfplace.simulation.evaluate import Simulator

_PROGRESS_S = 0.2
_MINE = ("evaluations", "elsewhere", "best", "over", "step_s", "rng")


class SearchState:
    """What all contexts of one search share: budget position, evaluations, history and the best placement.

    It asks the evaluator, or the run directory that knows the answer, and records what they say.

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
      queue: [U] placements that are evaluated before a placer begins.
      evaluations: placements evaluated.
      elsewhere: how many of them workers evaluated, which a run has no records of.
      fitting: the problem as placers see it, without devices on which a unit never fits.
      failed: how many of them did not fit, did not run, or were given up; of this process.
      ran_s: step seconds of all of them that have any; of this process.
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
        self.fitting = problem if few else self.evaluator.fitting
        self.rng = np.random.default_rng(seed)
        self._seed = seed
        self.evaluations = 0
        self.elsewhere = 0
        self.failed = 0
        self.ran_s = 0.0
        self.history: list[Improvement] = []
        self.best: IntArray | None = None
        self.best_key: Key | None = None
        self.controllers = controllers
        self.queue: list[IntArray] = []
        self._progress = progress
        self._reported = 0.0
        self._run = run
        self._logged = logged
        # what is simulated is simulated again sooner than it is looked up
        self._cache = None if self.evaluator.source == SIMULATED else Cache(self.evaluator)
        self._before_s = 0.0 if run is None else run.records.seconds
        self._told_s: float | None = None
        self._clock = Clock()
        if run is not None and budget.seconds is not None:
            self._go_on(run)

    def _go_on(self, run: RunDirectory) -> None:
        """From where a run was, without doing it again: what is random is not what it was before."""
        self.evaluations = max(self.evaluations, len(run.records.known) + self.elsewhere)
        run.records.skip(self.evaluations - self.elsewhere)
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
        self.queue.append(np.array(unit_device, np.int32))

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
        if self.evaluator.scale_s is not None:
            self._run.keep_scale(self.evaluator.scale_s)
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
        self.report(stage)

    def count(self, evaluations: int, stage: str) -> None:
        """Counts evaluations of workers; 0 shows the progress."""
        self.evaluations += evaluations
        self.elsewhere += evaluations
        self.report(stage)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Passes on what a policy says of its training."""
        if self._run is not None:
            self._run.log(self.evaluations, metrics)
        if self._logged is not None and self._told_s is None:
            self._logged(self.evaluations, metrics)

    def save_checkpoint(self, state: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """See `tfplace.core.search_context.SearchContext.save_checkpoint`."""
        if self._run is None or self.best is None or self.best_key is None or not self._run.keeps_now:
            return
        mine = {
            "evaluations": np.int64(self.evaluations),
            "elsewhere": np.int64(self.elsewhere),
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
            self.elsewhere = int(mine.get("elsewhere", 0))
            if len(self._run.records.known):
                self._go_on(self._run)
            return kept
        if kept is None or self.evaluations > int(mine["evaluations"]):
            return None  # or the search has gone past it
        self.rng.bit_generator.state = json.loads(str(mine["rng"]))
        self.evaluations = int(mine["evaluations"])
        self.elsewhere = int(mine["elsewhere"])
        self.best, self.best_key = mine["best"], (int(mine["over"]), float(mine["step_s"]))
        self._run.records.skip(self.evaluations - self.elsewhere)
        return kept

    def report(self, stage: str, *, last: bool = False) -> None:
        """Tells the progress, a few times a second and if it is the last time."""
        now = self.seconds
        if self._progress is None or (now - self._reported < _PROGRESS_S and not last):
            return
        self._reported = now
        over, best = self.best_key or (0, None)
        fraction = min(self.position() / self.total, 1.0)
        self._progress(Progress(self.evaluations, now, fraction, best, over == 0, stage, self.evaluator.source))


def _one(key: Key) -> tuple[LongArray, FloatArray]:
    return np.array([key[0]], np.int64), np.array([key[1]])
