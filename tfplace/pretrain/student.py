"""A policy and its lessons in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.pretrain.corpus import Entry
from tfplace.pretrain.pupil import Pupil, Taught
from tfplace.pretrain.teacher import Known, best_known


@dataclass(frozen=True)
class Teaching:
    """How the best known placements are found; see `best_known`.

    Attributes:
      folder: where they are kept.
      groups: of what is placed.
      evaluations: of each search.
      seed: of each search.
    """

    folder: Path
    groups: int = 256
    evaluations: int = 10_000
    seed: int = 0


class Student:
    """A policy that learns from one entry at a time; each is prepared when it is first needed.

    Args:
      entries: by number.
      teaching: see there.
      make: the policy, for any problem.
    """

    def __init__(self, entries: Sequence[Entry], teaching: Teaching, make: Callable[[Problem], Pupil[Any]]) -> None:
        self._entries = entries
        self._teaching = teaching
        self._make = make
        self._pupil: Pupil[Any] | None = None
        self._lessons: dict[int, Any] = {}

    def known(self, number: int) -> Known:
        """The best known placement of an entry."""
        entry, of = self._entries[number], self._teaching
        return best_known(entry, entry.problem(), of.folder, groups=of.groups, evaluations=of.evaluations, seed=of.seed)

    def fingerprint(self, number: int) -> str:
        """Of the graph of an entry."""
        return OpGraph.load(self._entries[number].path).fingerprint

    def pupil(self, number: int) -> Pupil[Any]:
        """The policy; made for an entry's problem, but it serves all."""
        if self._pupil is None:
            self._pupil = self._make(self._entries[number].problem())
        return self._pupil

    def lesson(self, number: int) -> Any:
        """That of an entry."""
        if number not in self._lessons:
            entry = self._entries[number]
            self._lessons[number] = self.pupil(number).lesson(entry.problem(), self.known(number))
        return self._lessons[number]


def teach(student: Student, number: int) -> tuple[str, float]:
    """The fingerprint of an entry's graph, and its best known step seconds, found if needed: a task of workers."""
    known = student.known(number)
    return student.fingerprint(number), known.key[1]


def learn(student: Student, stage: str, values: Sequence[NDArray[Any]], number: int, seed: Sequence[int]) -> Taught:
    """What an entry teaches a policy with these parameters, as plain arrays: a task of workers.

    Args:
      student: own of the worker.
      stage: "imitate" or "reinforce".
      values: parameters.
      number: of the entry.
      seed: of everything random.
    """
    pupil, lesson = _ready(student, values, number)
    taught: Taught = getattr(pupil, stage)(lesson, np.random.default_rng(seed))
    return Taught([tf.convert_to_tensor(gradient).numpy() for gradient in taught.gradients], taught.metrics)


def examine(student: Student, values: Sequence[NDArray[Any]], number: int, seed: Sequence[int]) -> Mapping[str, float]:
    """How a policy with these parameters does on an entry: a task of workers."""
    pupil, lesson = _ready(student, values, number)
    return pupil.examine(lesson, np.random.default_rng(seed))


def _ready(student: Student, values: Sequence[NDArray[Any]], number: int) -> tuple[Pupil[Any], Any]:
    pupil, lesson = student.pupil(number), student.lesson(number)
    for variable, value in zip(pupil.variables, values, strict=True):
        variable.assign(value)
    return pupil, lesson
