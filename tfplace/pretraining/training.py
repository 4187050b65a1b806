"""Training on many graphs: who learns from what, when, and what is kept."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.core.engine import Engine, Workers
from tfplace.errors import InputError
from tfplace.learned.training.parameters import Parameters
from tfplace.learned.training.pretrained import Pretrained
from tfplace.pretraining.corpus import Entry
from tfplace.pretraining.examination import Examination, Shown, counts
from tfplace.pretraining.student import Student, Teaching, learn
from tfplace.pretraining.trainable import Taught, Trainable
from tfplace.search.rundir import RunDirectory

IMITATE, REINFORCE = "imitate", "reinforce"

_WARM_UP = 50
_CLIP = 1.0


@dataclass(frozen=True)
class Course:
    """Constants.

    Attributes:
      imitate: updates that imitate the best known placements.
      reinforce: updates after these, that reinforce what turns out well.
      batch: entries an update learns from.
      imitate_rate: of Adam at first, in imitation; it falls to a tenth, in a line.
      reinforce_rate: the same of reinforcement.
      curriculum: whether topologies come one after the other, over the first half of each stage; else all at once.
      examine: updates between examinations.
      seed: of everything random.

    Raises:
      InputError: numbers that make no course.
    """

    imitate: int = 2000
    reinforce: int = 4000
    batch: int = 2
    imitate_rate: float = 3e-3
    reinforce_rate: float = 5e-4
    curriculum: bool = True
    examine: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.imitate, self.reinforce) < 0 or self.imitate + self.reinforce < 1:
            raise InputError(
                f"{self.imitate} and {self.reinforce} updates", "numbers that are not negative, one above 0"
            )
        if min(self.batch, self.examine) < 1 or not min(self.imitate_rate, self.reinforce_rate) > 0:
            given = f"batch {self.batch}, examine {self.examine}, rates {self.imitate_rate} and {self.reinforce_rate}"
            raise InputError(given, "numbers above 0")

    @property
    def updates(self) -> int:
        """Of both stages."""
        return self.imitate + self.reinforce

    def stage(self, update: int) -> tuple[str, float]:
        """Which stage an update is of, and what part of that is done before it."""
        if update < self.imitate:
            return IMITATE, update / self.imitate
        return REINFORCE, (update - self.imitate) / self.reinforce

    def rate(self, update: int) -> float:
        """Of Adam."""
        stage, done = self.stage(update)
        first = self.imitate_rate if stage == IMITATE else self.reinforce_rate
        begun = update if stage == IMITATE else update - self.imitate
        return first * min(1.0, (begun + 1) / _WARM_UP) * (1 - 0.9 * done)


class Training:
    """Trains a policy; the same seed gives the same parameters, however many workers there are.

    What is kept in the folder is enough to go on after the process has ended in any way: `checkpoint.npz`, and
    `metrics.jsonl` with what was logged.

    Args:
      entries: what is learned from, and what is held out.
      make: the policy.
      policy: its name.
      course: constants.
      teaching: how the best known placements are found.
      folder: of the run.
      engine: starts the workers.
      shown: is told how it goes.

    Raises:
      InputError: nothing to learn from, or the folder is of another training.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        make: Callable[[], Trainable[Any]],
        policy: str,
        *,
        course: Course,
        teaching: Teaching,
        folder: Path,
        engine: Engine,
        shown: Shown,
    ) -> None:
        self.entries = entries
        self.policy = policy
        self.course = course
        self._shown = shown
        self._examination = Examination(entries, shown)
        self._folder = folder
        self._engine = engine
        self._student = functools.partial(Student, entries, teaching, make)
        self._learned = [n for n, entry in enumerate(entries) if not entry.held_out]
        if not self._learned:
            raise InputError(f"{len(entries)} graphs, all held out", "some graphs to learn from")
        self._topologies = list(dict.fromkeys(entries[n].case.topology for n in self._learned))
        self._pupil = make()
        self.parameters = Parameters(self._pupil.variables, course.imitate_rate)
        self.update = 0
        self._config = {
            "policy": policy,
            "settings": dict(self._pupil.constants),
            "course": asdict(course),
            "teaching": teaching.facts(),
            "entries": [entry.facts() for entry in entries],
        }

    def go(self) -> Pretrained:
        """Trains to the course's end, from where it was.

        Raises:
          InputError: the folder is of another training, or in use.
          WorkersError: workers do not come back.
        """
        with (
            RunDirectory(self._folder, self._config) as run,
            contextlib.closing(self._engine.start(self._student)) as workers,
        ):
            kept = run.load_checkpoint()
            if kept is not None:
                self.parameters.restore(kept)
                self.update = int(kept["update"])
            self._examination.teach(workers, range(len(self.entries)))
            while self.update < self.course.updates:
                metrics = self._step(workers)
                examined = self.update % self.course.examine == 0 or self.update == self.course.updates
                if examined:
                    metrics |= self._examine(workers)
                run.log(self.update, metrics)
                if examined or run.keeps_now:
                    run.save_checkpoint(self._state())
            if not self._examination.exams:  # the course was over
                self._examine(workers)
        return Pretrained(self.policy, self._pupil.settings, self.parameters.values(), self._card())

    def _step(self, workers: Workers) -> dict[str, float]:
        course, update = self.course, self.update
        stage, done = course.stage(update)
        if stage == REINFORCE and done == 0 and course.imitate:
            self._pupil.sharpen()
        rng = np.random.default_rng([course.seed, update])
        numbers = rng.choice(self._available(done), size=course.batch)
        values = self.parameters.values()
        futures = [
            workers.submit(learn, stage, values, int(number), (course.seed, update, i))
            for i, number in enumerate(numbers)
        ]
        taught: list[Taught] = [future.result() for future in futures]
        mean = [np.mean(each, axis=0) for each in zip(*(t.gradients for t in taught), strict=True)]
        norm = self.parameters.descend(mean, course.rate(update), _CLIP)
        self.update += 1
        self._shown.progress(stage, self.update, course.updates)
        metrics = {name: float(np.mean([t.metrics[name] for t in taught])) for name in taught[0].metrics}
        return {"gradient": norm, **metrics}

    def _available(self, done: float) -> list[int]:
        """Entries to learn from: the topologies come one after the other over the first half."""
        count = len(self._topologies)
        now = count if not self.course.curriculum else min(count, 1 + int(2 * done * count))
        open_now = self._topologies[:now]
        return [n for n in self._learned if self.entries[n].case.topology in open_now]

    def _examine(self, workers: Workers) -> dict[str, float]:
        return self._examination.examine(workers, self.parameters.values(), self.update)

    def _card(self) -> dict[str, Any]:
        return {
            "updates": self.update,
            "graphs": counts(self.entries),
            **self._examination.facts(),
            "config": {name: value for name, value in self._config.items() if name != "entries"},
        }

    def _state(self) -> dict[str, NDArray[Any]]:
        return self.parameters.state() | {"update": np.array(self.update)}
