"""Post: cross-entropy minimization joined with proximal policy optimization, and its parts alone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError, SearchContext, best_of
from tfplace.errors import InputError
from tfplace.learned.features.prior import NEVER, prior_logits
from tfplace.learned.training.baselines import moving_average, standardised
from tfplace.learned.training.metrics import batch_metrics
from tfplace.learned.training.rewards import Reward, RewardSettings
from tfplace.local_search.elite import fit_elite
from tfplace.local_search.grouped_context import in_groups
from tfplace.local_search.penalized_cost import best_start
from tfplace.local_search.sampling import device_share, pick


@dataclass(frozen=True)
class PostSettings:
    """Post's constants. The paper names those of the cross-entropy step; K, N and the rates are not published.

    Attributes:
      groups: what is placed, if there are more units.
      batch: K, placements drawn for each step of policy optimization.
      window: N, placements after each of which the distribution is fitted to their elite; a multiple of the batch. 0
        leaves that out.
      elite: rho, the part of them that it is fitted to.
      mixing: epsilon, the part of the blind draw in the distribution then.
      steps: of gradient descent on each batch, about 10 in the paper; 0 leaves them out.
      rate: of gradient descent.
      beta: weight of the divergence from the distribution that drew the batch.
      decay: of the moving average that is the baseline; None takes the mean of the batch, as the paper does.
      lean: of `prior_logits`, if there is a start.
      reward: of what is drawn; Post's is of the seconds themselves.
    """

    groups: int = 256
    batch: int = 10
    window: int = 100
    elite: float = 0.1
    mixing: float = 0.02
    steps: int = 10
    rate: float = 0.3
    beta: float = 1.0
    decay: float | None = None
    lean: float = 0.9
    reward: RewardSettings = field(default_factory=RewardSettings)

    def __post_init__(self) -> None:
        some = self.window > 0 or self.steps > 0
        if self.batch < 1 or self.window % self.batch or min(self.window, self.steps) < 0 or not some:
            raise InputError(
                f"batches of {self.batch}, a window of {self.window} and {self.steps} steps",
                "a window that is a multiple of the batch, and a window or steps",
            )
        if self.steps and self.batch < 2:
            raise InputError(
                f"a batch of {self.batch} with {self.steps} steps", "at least 2, to compare with each other"
            )
        ranges = {
            "groups": (1, math.inf),
            "elite": (0, 1),
            "mixing": (0, 1),
            "rate": (0, math.inf),
            "beta": (0, math.inf),
            "decay": (0, 1),
            "lean": (0, 1),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise InputError(f"{name} {value}", f"a number from {least} to {most}")


class Post(Placer):
    """An independent categorical distribution for each group's device, moved in two ways; no network.

    Every `batch` placements, gradient descent on the objective of proximal policy optimization (equation 11); every
    `window` placements instead, the distribution with the least cross entropy to the best of them, in closed form
    (equation 10, see `fit_elite`).

    Departures. Groups are those of `tfplace.group.co_placement.merge`. The first distribution, and what is mixed in,
    are the blind draw, where Post's are uniform (see `prior_logits`). Advantages are divided by their deviation, so
    that one rate does for all models. Placements that do not fit are ranked by a price for what is missing.

    Args:
      starts: [U] placements, of which the first distribution leans towards the best.
      settings: constants.
    """

    citation = (
        "Y. Gao, L. Chen, B. Li: Post: Device Placement with Cross-Entropy Minimization and Proximal Policy "
        "Optimization. NeurIPS 2018, algorithm 1."
    )
    accepts_starts = True
    learned = True
    needs_tensorflow = True
    settings: PostSettings

    def __init__(self, starts: Sequence[IntArray] = (), settings: PostSettings | None = None) -> None:
        self.starts = tuple(starts)
        self.settings = settings or self.defaults()

    @classmethod
    def defaults(cls) -> PostSettings:
        """The constants of this variant."""
        return PostSettings()

    def place(self, context: SearchContext) -> IntArray:
        """Draws and learns until the context's budget is used up."""
        grouped = in_groups(context, self.settings.groups)
        with contextlib.suppress(BudgetSpentError):
            _Run(grouped, self.settings).go(grouped.known(self.starts))
        return best_of(context)


class PostCrossEntropy(Post):
    """Post's cross-entropy steps alone."""

    @classmethod
    def defaults(cls) -> PostSettings:
        """Without gradient steps."""
        return PostSettings(steps=0)


class PostPpo(Post):
    """Post's proximal policy optimization alone."""

    @classmethod
    def defaults(cls) -> PostSettings:
        """Without a window."""
        return PostSettings(window=0)


class PolicyGradient(Post):
    """Plain policy gradient on Post's distributions: one step a batch, against the moving average of the rewards.

    The estimator of `seq2seq` (A. Mirhoseini et al., ICML 2017, equation 3) without its network: what Post is compared
    with in its own terms.
    """

    @classmethod
    def defaults(cls) -> PostSettings:
        """One step, no divergence, and a moving average for a baseline."""
        return PostSettings(window=0, steps=1, rate=1.0, beta=0.0, decay=0.9)


class _Batch(NamedTuple):
    """[B, G] devices, [B] bytes over the limits and [B] step seconds."""

    devices: IntArray
    over: LongArray
    step_s: FloatArray


class _Run:
    """One run of algorithm 1 on the units of a context."""

    def __init__(self, context: SearchContext, settings: PostSettings) -> None:
        from tfplace.learned.networks.categorical import descend

        self.context = context
        self.settings = settings
        self.descend = descend
        self.blind = device_share(context.problem)
        self.window: list[_Batch] = []
        self.logits: FloatArray
        self.baseline = np.nan
        self.reward: Reward

    def go(self, starts: Sequence[IntArray]) -> None:
        """Until the context raises."""
        context, settings = self.context, self.settings
        self._begin(starts)
        while True:
            probability = _softmax(self.logits)
            batch = self._draw(probability)
            metrics = self._improve(batch)
            if settings.window:
                self.window.append(batch)
                if len(self.window) * settings.batch == settings.window:
                    self._fit(probability)
            context.log(metrics)
            context.save_checkpoint(self._state)

    def _begin(self, starts: Sequence[IntArray]) -> None:
        kept = self.context.load_checkpoint()
        if kept is None:
            start = best_start(self.context, starts)[0] if starts else None
            self.logits = prior_logits(self.context.problem, start, self.settings.lean)
            self.reward = Reward(self.context, self.settings.reward)
            return
        self.logits, self.baseline = kept["logits"], float(kept["baseline"])
        self.reward = Reward(self.context, self.settings.reward, float(kept["weight"]))
        rows = self.settings.batch
        self.window = [
            _Batch(kept["devices"][i : i + rows], kept["over"][i : i + rows], kept["step_s"][i : i + rows])
            for i in range(0, len(kept["over"]), rows)
        ]

    def _draw(self, probability: FloatArray) -> _Batch:
        devices = pick(self.context.rng.random((self.settings.batch, len(probability))), probability)
        over, step_s = self.context.keys(devices)
        return _Batch(devices[: len(over)], over, step_s)

    def _improve(self, batch: _Batch) -> dict[str, float]:
        """Gradient steps on a batch, but where the distribution is fitted instead (algorithm 1, n % N = 0)."""
        rewards = self.reward(batch.over, batch.step_s)
        self.reward.adapt(batch.over)
        metrics = batch_metrics(batch.over, batch.step_s, rewards)
        fits_now = self.settings.window and (len(self.window) + 1) * self.settings.batch == self.settings.window
        if not self.settings.steps or fits_now:
            return metrics
        if self.settings.decay is None:
            advantage = standardised(rewards)
        else:
            before = float(rewards.mean()) if np.isnan(self.baseline) else self.baseline
            advantage = (rewards - before) / max(float(rewards.std()), 1e-3)
            self.baseline = moving_average(before, rewards, self.settings.decay)
        settings = self.settings
        self.logits, told = self.descend(
            self.logits, batch.devices, advantage, steps=settings.steps, rate=settings.rate, beta=settings.beta
        )
        return metrics | told

    def _fit(self, probability: FloatArray) -> None:
        """The distribution fitted to the best of the window."""
        devices, over, step_s = (np.concatenate(parts) for parts in zip(*self.window, strict=True))
        count = max(round(self.settings.elite * len(over)), 1)
        elite = devices[np.argsort(-self.reward(over, step_s), kind="stable")[:count]]
        fitted = fit_elite(probability, elite, self.blind, mixing=self.settings.mixing)
        self.logits = np.where(fitted > 0, np.log(np.maximum(fitted, 1e-30)), NEVER)
        self.window = []

    def _state(self) -> dict[str, NDArray[Any]]:
        rows = (
            (np.concatenate(parts) for parts in zip(*self.window, strict=True)) if self.window else _nothing(self.blind)
        )
        return {
            "logits": self.logits,
            "baseline": np.array(self.baseline),
            "weight": np.array(self.reward.weight),
            **dict(zip(_Batch._fields, rows, strict=True)),
        }


def _nothing(blind: FloatArray) -> _Batch:
    return _Batch(np.zeros((0, len(blind)), np.int32), np.zeros(0, np.int64), np.zeros(0))


def _softmax(logits: FloatArray) -> FloatArray:
    """[G, D] probabilities."""
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True), np.float64)
