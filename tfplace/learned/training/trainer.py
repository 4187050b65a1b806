"""How a network that draws placements is trained: trials, their gradients, a step of the optimizer."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfplace.core.arrays import IntArray
from tfplace.core.engine import Workers
from tfplace.core.search_context import BudgetSpentError, SearchContext
from tfplace.learned.training.controller import Controller, Learner, Order, Trial, apart, trial
from tfplace.learned.training.host import on_host
from tfplace.learned.training.metrics import batch_metrics
from tfplace.learned.training.parameters import Parameters
from tfplace.learned.training.rewards import Reward
from tfplace.learned.training.settings import TrainSettings
from tfplace.local_search.penalized_cost import best_start

_LOOK_S = 1.0


def train(
    context: SearchContext,
    starts: Sequence[IntArray],
    learner: Callable[[IntArray | None, SearchContext], Learner],
    settings: TrainSettings,
) -> None:
    """Trains a policy until the context's budget is used up.

    Args:
      context: evaluates.
      starts: [U] placements, of which the policy leans towards the best.
      learner: makes the policy from that, if there is one, and a context.
      settings: constants.

    Raises:
      InputError: see `on_host`.
    """
    with on_host(), contextlib.suppress(BudgetSpentError):
        start = best_start(context, starts)[0] if starts else None
        Training(context, functools.partial(learner, start), settings).go()


class Training:
    """Trains a learner on what a context says of its placements, alone or with the context's controllers.

    Args:
      context: evaluates; its end ends the training.
      learner: makes the policy for a context, with its first parameters from the context's generator; can be sent to
        another process.
      settings: constants.
    """

    def __init__(
        self, context: SearchContext, learner: Callable[[SearchContext], Learner], settings: TrainSettings
    ) -> None:
        self.context = context
        self.settings = settings
        self.own = Controller(context, learner(context), settings)
        self.parameters = Parameters(self.own.learner.variables, settings.rate)
        self.baselines: list[float] = []
        self.updates = 0
        self._learner = learner

    def go(self, updates: float = math.inf) -> None:
        """Until the context's budget is used up, or it has made so many updates.

        Raises:
          BudgetSpentError: from the context.
          WorkersError: controllers do not come back.
        """
        controllers = self.context.controllers
        self._recall(same=controllers is None or not controllers.asynchronous)
        if controllers is None:
            self._alone(updates)
            return
        make = functools.partial(apart, self.context.replica(), self._learner, self.settings)
        with contextlib.closing(controllers.engine.start(make)) as workers:
            if controllers.asynchronous:
                self._as_they_come(workers, controllers.count, updates)
            else:
                self._all_together(workers, controllers.number, updates)

    def _alone(self, updates: float) -> None:
        while self.updates < updates:
            done = self.own.trial(self._order(0))
            self._learn({0: done})
            if done.gradients:
                for _ in range(1, self.own.learner.epochs):
                    self._descend([self.own.again()])
            self.context.save_checkpoint(self._state)

    def _all_together(self, workers: Workers, count: int, updates: float) -> None:
        """Synchronously: the mean of all gradients, in the controllers' order."""
        while self._goes_on(updates):
            parameters = self.parameters.values()
            futures = [workers.submit(trial, parameters, self._order(c)) for c in range(count)]
            self._learn({c: self._told(future.result()) for c, future in enumerate(futures)})
            self.context.save_checkpoint(self._state)

    def _as_they_come(self, workers: Workers, count: int | None, updates: float) -> None:
        """Asynchronously: each gradient when it is there, by so many controllers, or as many as there are workers."""
        running: dict[Future[Trial], int] = {}
        while self._goes_on(updates):
            parameters = self.parameters.values()
            for controller in sorted({*range(count or workers.count)} - {*running.values()}):
                running[workers.submit(trial, parameters, self._order(controller))] = controller
            ended = wait(running, _LOOK_S, FIRST_COMPLETED).done  # or somebody may have joined
            for future in sorted(ended, key=running.__getitem__):
                self._learn({running.pop(future): self._told(future.result())})
                self.context.save_checkpoint(self._state)

    def _goes_on(self, updates: float) -> bool:
        """Whether there is budget left; the first trial, whose processes may take as long to start, always counts."""
        return (self.context.spent < 1 or not self.context.evaluations) and self.updates < updates

    def _order(self, controller: int) -> Order:
        while len(self.baselines) <= controller:
            self.baselines.append(self.own.reward.worst if self.settings.pessimistic else np.nan)
        seed = self.context.rng.integers(2**31, size=2).astype(np.int32)
        return Order(seed, self.baselines[controller], self.own.reward.weight, self.updates)

    def _told(self, done: Trial) -> Trial:
        """The trial, as far as the budget goes."""
        count = self.context.tell(done.devices, done.over, done.step_s)
        if count == len(done.over):
            return done
        return replace(
            done, over=done.over[:count], step_s=done.step_s[:count], rewards=done.rewards[:count], gradients=()
        )

    def _learn(self, trials: dict[int, Trial]) -> None:
        """One step of the optimizer, with the mean gradient of the controllers' trials."""
        for controller, done in trials.items():
            self.baselines[controller] = done.baseline
        told = [*trials.values()]
        over, step_s, rewards = (
            np.concatenate([getattr(done, name) for done in told]) for name in ("over", "step_s", "rewards")
        )
        if not len(over):
            return
        metrics = batch_metrics(over, step_s, rewards)
        if all(done.gradients for done in told):
            metrics["baseline"] = float(np.mean([done.before for done in told]))
            metrics["gradient"] = self._descend([done.gradients for done in told])
            metrics |= {name: float(np.mean([done.metrics[name] for done in told])) for name in told[0].metrics}
            self.own.reward.adapt(over)
            self.updates += 1
        self.context.log(metrics)

    def _descend(self, gradients: Sequence[Sequence[Any]]) -> float:
        """The norm of the mean gradient before clipping."""
        mean = gradients[0]
        if len(gradients) > 1:
            mean = [tf.add_n(of_one) / len(of_one) for of_one in zip(*gradients, strict=True)]
        return self.parameters.descend(mean, self.settings.rate_at(self.updates), self.settings.clip)

    def _state(self) -> dict[str, NDArray[Any]]:
        return self.parameters.state() | {
            "baselines": np.array(self.baselines),
            "updates": np.array(self.updates),
            "weight": np.array(self.own.reward.weight),
        }

    def _recall(self, *, same: bool) -> None:
        kept = self.context.load_checkpoint(same=same)
        if kept is None:
            return
        self.parameters.restore(kept)
        self.baselines, self.updates = kept["baselines"].tolist(), int(kept["updates"])
        self.own.reward = Reward(self.context, self.settings.reward, float(kept["weight"]))
