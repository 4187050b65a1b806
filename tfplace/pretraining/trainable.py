"""What a policy has to do to be trained on many graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.core.problem import Problem
from tfplace.local_search.devices import compute_devices
from tfplace.pretraining.teacher import Known

_MISSING, _MISSING_ALL = 0.2, 5.0

Lesson = TypeVar("Lesson")


class Taught(NamedTuple):
    """The gradient of a loss by each variable, and what there is to log."""

    gradients: Sequence[Any]
    metrics: Mapping[str, float]


class Trainable(Protocol[Lesson]):
    """A policy with parameters that serve all problems."""

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """What is trained, always in the same order."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The constants of the network, as `Pretrained.settings` has them."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """All constants, also of how it is trained."""

    def lesson(self, problem: Problem, known: Known) -> Lesson:
        """A problem as the policy sees it, and its best known placement."""

    def imitate(self, lesson: Lesson, rng: np.random.Generator) -> Taught:
        """In which direction the best known placement is more likely."""

    def reinforce(self, lesson: Lesson, rng: np.random.Generator) -> Taught:
        """In which direction better placements are more likely, of some that are drawn."""

    def sharpen(self) -> None:
        """Makes likely choices likelier, between imitation and reinforcement."""

    def examine(self, lesson: Lesson, rng: np.random.Generator) -> dict[str, float]:
        """Step seconds, over those of the best known placement, of what the policy does without learning.

        Infinite for what does not fit.
        """


def reward(problem: Problem, over: LongArray, step_s: FloatArray) -> FloatArray:
    """[B] minus the logarithm of step seconds, less a price of the bytes missing, as part of the accelerators'."""
    limit = max(float(problem.memory_limit[compute_devices(problem)].sum()), 1.0)
    return np.asarray(-np.log(step_s) - np.where(over > 0, _MISSING + _MISSING_ALL * over / limit, 0.0), np.float64)
