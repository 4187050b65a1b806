"""A policy and its lessons in a process of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfplace.core.problem import Problem
from tfplace.pretraining.corpus import Entry
from tfplace.pretraining.teacher import Known, best_known
from tfplace.pretraining.trainable import Taught, Trainable


@dataclass(frozen=True)
class Teaching:
    """How the best known placements are found; see `best_known`.

    Attributes:
      folder: where they are kept.
      groups: of what is placed; 0 places every unit by itself.
      evaluations: of each search.
      seed: of each search.
    """

    folder: Path
    groups: int = 256
    evaluations: int = 10_000
    seed: int = 0

    def facts(self) -> dict[str, Any]:
        """Plain data, without where the files are."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}


class Student:
    """A policy that learns from one entry at a time; each is prepared when it is first needed.

    Args:
      entries: by number.
      teaching: see there.
      make: the policy.
    """

    def __init__(self, entries: Sequence[Entry], teaching: Teaching, make: Callable[[], Trainable[Any]]) -> None:
        self._entries = entries
        self._teaching = teaching
        self._make = make
        self._lessons: dict[int, Any] = {}

    @functools.cached_property
    def trainable(self) -> Trainable[Any]:
        """The policy."""
        return self._make()

    def taught(self, number: int) -> tuple[Problem, Known]:
        """The problem of an entry, and its best known placement."""
        entry, of = self._entries[number], self._teaching
        problem = entry.problem()
        known = best_known(entry, problem, of.folder, groups=of.groups, evaluations=of.evaluations, seed=of.seed)
        return problem, known

    def lesson(self, number: int) -> Any:
        """That of an entry."""
        if number not in self._lessons:
            self._lessons[number] = self.trainable.lesson(*self.taught(number))
        return self._lessons[number]


def teach(student: Student, number: int) -> tuple[str, float]:
    """The fingerprint of an entry's graph, and its best known step seconds, found if needed: a task of workers."""
    problem, known = student.taught(number)
    return problem.graph.fingerprint, known.key[1]


def learn(student: Student, stage: str, values: Sequence[NDArray[Any]], number: int, seed: Sequence[int]) -> Taught:
    """What an entry teaches a policy with these parameters, as plain arrays: a task of workers.

    Args:
      student: own of the worker.
      stage: "imitate" or "reinforce".
      values: parameters.
      number: of the entry.
      seed: of everything random.
    """
    trainable, lesson = _ready(student, values, number)
    taught: Taught = getattr(trainable, stage)(lesson, np.random.default_rng(seed))
    return Taught([tf.convert_to_tensor(gradient).numpy() for gradient in taught.gradients], taught.metrics)


def examine(student: Student, values: Sequence[NDArray[Any]], number: int, seed: Sequence[int]) -> Mapping[str, float]:
    """How a policy with these parameters does on an entry: a task of workers."""
    trainable, lesson = _ready(student, values, number)
    return trainable.examine(lesson, np.random.default_rng(seed))


def _ready(student: Student, values: Sequence[NDArray[Any]], number: int) -> tuple[Trainable[Any], Any]:
    trainable, lesson = student.trainable, student.lesson(number)
    for variable, value in zip(trainable.variables, values, strict=True):
        variable.assign(value)
    return trainable, lesson
