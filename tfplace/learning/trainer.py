"""How a network that draws placements is trained: draw, evaluate, compare with a baseline, descend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import sonnet as snt
import tensorflow as tf
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.learning.baselines import moving_average
from tfplace.learning.metrics import batch_metrics
from tfplace.learning.rewards import Reward, failed
from tfplace.learning.settings import TrainSettings
from tfplace.study.base import Study


class Learner(Protocol):
    """A policy with parameters."""

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """What is trained, always in the same order."""

    def sample(self, count: int, seed: IntArray, updates: int) -> Drawn:
        """Draws placements; the same with the same parameters and [2] seed.

        Args:
          count: B.
          seed: [2].
          updates: of the parameters so far.
        """

    def gradients(
        self, drawn: Drawn, advantage: FloatArray, weight: FloatArray
    ) -> tuple[list[tf.Tensor], Mapping[str, tf.Tensor]]:
        """The gradient of the loss for each variable, and what there is to log.

        Args:
          drawn: what `sample` gave, or its first rows.
          advantage: [B].
          weight: [B] 0 for samples that are left out.
        """


@dataclass(frozen=True, eq=False)
class Drawn:
    """Placements, and the choices they were made by.

    Attributes:
      devices: [B, U].
      choices: arrays by name with B rows, or shared by all placements, which only the learner knows.
    """

    devices: IntArray
    choices: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Training:
    """Trains a learner on what a study says of its placements.

    Args:
      study: evaluates; its end ends the training.
      learner: draws.
      settings: constants.
    """

    def __init__(self, study: Study, learner: Learner, settings: TrainSettings) -> None:
        self.study = study
        self.learner = learner
        self.settings = settings
        self.rate = tf.Variable(settings.rate, trainable=False)
        self.optimizer = snt.optimizers.Adam(self.rate)
        self.optimizer.apply([tf.zeros_like(v) for v in learner.variables], learner.variables)  # makes its slots
        self.optimizer.step.assign(0)
        self.reward = Reward(study, settings.reward)
        self.baseline = self.reward.worst if settings.pessimistic else np.nan
        self.updates = 0

    def go(self) -> None:
        """Until the study raises.

        Raises:
          BudgetSpentError: from the study.
        """
        self._recall()
        while True:
            self.study.log(self.update())
            self.study.keep(self._state)

    def update(self) -> dict[str, float]:
        """One batch; what there is to log of it."""
        drawn = self.learner.sample(self.settings.batch, self._seed(), self.updates)
        over, step_s = self.study.keys(drawn.devices)
        rewards = self.reward(over, step_s)
        counts = np.ones(len(over), bool)
        if self.updates >= self.settings.ignore_failed_after:
            counts = ~failed(over, step_s)
        before = float(rewards.mean()) if np.isnan(self.baseline) else self.baseline
        self.baseline = moving_average(before, rewards[counts], self.settings.decay)
        if len(over) < len(drawn.devices):  # the budget's end: there is nothing left to learn for
            return batch_metrics(over, step_s, rewards)
        gradients, metrics = self.learner.gradients(drawn, rewards - before, counts.astype(np.float64))
        self.rate.assign(self.settings.rate_at(self.updates))
        clipped, norm = tf.clip_by_global_norm(gradients, self.settings.clip)
        self.optimizer.apply(clipped, self.learner.variables)
        self.reward.adapt(over)
        self.updates += 1
        told = {name: float(value) for name, value in metrics.items()}
        return batch_metrics(over, step_s, rewards) | {"baseline": before, "gradient": float(norm)} | told

    def _seed(self) -> IntArray:
        return self.study.rng.integers(2**31, size=2).astype(np.int32)

    def _all_variables(self) -> list[tf.Variable]:
        return [*self.learner.variables, *self.optimizer.m, *self.optimizer.v, self.optimizer.step]

    def _state(self) -> dict[str, NDArray[Any]]:
        arrays = {f"variable{i}": v.numpy() for i, v in enumerate(self._all_variables())}
        return arrays | {
            "baseline": np.array(self.baseline),
            "updates": np.array(self.updates),
            "weight": np.array(self.reward.weight),
        }

    def _recall(self) -> None:
        kept = self.study.recall()
        if kept is None:
            return
        for i, variable in enumerate(self._all_variables()):
            variable.assign(kept[f"variable{i}"])
        self.baseline, self.updates = float(kept["baseline"]), int(kept["updates"])
        self.reward = Reward(self.study, self.settings.reward, float(kept["weight"]))
