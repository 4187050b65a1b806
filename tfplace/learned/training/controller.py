"""One trial of a policy: draw placements, evaluate them, and say in which direction they are better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.search_context import SearchContext
from tfplace.learned.training.baselines import mean_of_trials, moving_average
from tfplace.learned.training.rewards import Reward, failed
from tfplace.learned.training.settings import TrainSettings


class Learner(Protocol):
    """A policy with parameters.

    Attributes:
      epochs: how often it learns from a batch where it learns alone; more than once needs an objective that knows what
        drew the batch, such as PPO's.
    """

    epochs: int

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


@dataclass(frozen=True, eq=False)
class Order:
    """What a controller is told of the training before a trial.

    Attributes:
      seed: [2], of what it draws.
      baseline: what its rewards are compared with; NaN before there is any.
      weight: of the price of missing memory.
      updates: of the parameters so far.
    """

    seed: IntArray
    baseline: float
    weight: float
    updates: int


@dataclass(frozen=True, eq=False)
class Trial:
    """What came of it.

    Attributes:
      devices: [B, U] what was drawn.
      over: [b] bytes over the limits of those that were evaluated, the first ones.
      step_s: [b] their step seconds.
      rewards: [b].
      before: what they were compared with.
      baseline: what the next are compared with.
      gradients: one for each variable; none if not all were evaluated, which is the budget's end.
      metrics: of the gradients.
    """

    devices: IntArray
    over: LongArray
    step_s: FloatArray
    rewards: FloatArray
    before: float
    baseline: float
    gradients: Sequence[Any] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


class Controller:
    """Has a policy, and the context in which its placements are evaluated.

    Args:
      context: evaluates.
      learner: draws.
      settings: constants.
    """

    def __init__(self, context: SearchContext, learner: Learner, settings: TrainSettings) -> None:
        self.learner = learner
        self.reward = Reward(context, settings.reward)
        self._context = context
        self._settings = settings
        self._last: tuple[Drawn, FloatArray, FloatArray] | None = None

    def trial(self, order: Order) -> Trial:
        """One batch with the present parameters.

        Raises:
          BudgetSpentError: from the context.
        """
        settings = self._settings
        drawn = self.learner.sample(settings.batch, order.seed, order.updates)
        over, step_s = self._context.keys(drawn.devices)
        self.reward.weight = order.weight
        rewards = self.reward(over, step_s)
        counts = np.ones(len(over), bool)
        if order.updates >= settings.ignore_failed_after:
            counts = ~failed(over, step_s)
        before = float(rewards.mean()) if np.isnan(order.baseline) else order.baseline
        if settings.decay is None:
            baseline = mean_of_trials(before, order.updates * settings.batch, rewards[counts])
        else:
            baseline = moving_average(before, rewards[counts], settings.decay)
        done = Trial(drawn.devices, over, step_s, rewards, before, baseline)
        if len(over) < len(drawn.devices):  # there is nothing left to learn for
            return done
        self._last = drawn, rewards - before, counts.astype(np.float64)
        gradients, metrics = self.learner.gradients(*self._last)
        return replace(done, gradients=gradients, metrics={name: float(value) for name, value in metrics.items()})

    def again(self) -> Sequence[Any]:
        """The gradients of the last trial with the present parameters."""
        assert self._last is not None  # there was one
        return self.learner.gradients(*self._last)[0]


def apart(
    replica: Callable[[], SearchContext], learner: Callable[[SearchContext], Learner], settings: TrainSettings
) -> Controller:
    """A controller in a process of its own; see `Engine.start`."""
    context = replica()
    return Controller(context, learner(context), settings)


def trial(controller: Controller, parameters: Sequence[NDArray[Any]], order: Order) -> Trial:
    """A trial with these parameters, as plain arrays: the task of workers."""
    for variable, value in zip(controller.learner.variables, parameters, strict=True):
        variable.assign(value)
    done = controller.trial(order)
    return replace(done, gradients=[tf.convert_to_tensor(gradient).numpy() for gradient in done.gradients])
