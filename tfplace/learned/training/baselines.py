"""What rewards are compared with, so that gradients vary less: pure functions, whose results are the next state."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.errors import InputError


def moving_average(baseline: float, rewards: FloatArray, decay: float) -> float:
    """The exponential moving average after a batch, whose mean counts as one: equation 3 of Mirhoseini 2017, section 3.

    Args:
      baseline: before. At the start that of a failing placement, as the paper has it.
      rewards: [B]; of none the average stays.
      decay: from 0, which keeps the batch only, to below 1.

    Raises:
      InputError: another rank, or a decay out of range.
    """
    _rank("rewards", rewards, 1)
    if not 0 <= decay < 1:
        raise InputError(f"decay {decay}", "at least 0 and below 1")
    return decay * baseline + (1 - decay) * float(np.mean(rewards)) if len(rewards) else baseline


def mean_of_trials(baseline: float, trials: int, rewards: FloatArray) -> float:
    """The mean of all trials so far, this batch with them: the baseline of GDP (Zhou et al. 2019, section 3.4).

    Args:
      baseline: of the trials before.
      trials: how many these were.
      rewards: [B].

    Raises:
      InputError: another rank.
    """
    _rank("rewards", rewards, 1)
    return baseline + float((rewards - baseline).sum()) / (trials + len(rewards)) if len(rewards) else baseline


def by_step(returns: FloatArray, last: int) -> FloatArray:
    """[T] the mean return at each step of the last episodes: Placeto's baseline (Addanki et al. 2019, section 3.2).

    Args:
      returns: [N, T] of every episode so far, the oldest first; at least one.
      last: how many count.

    Raises:
      InputError: another rank, no episode, or a `last` below 1.
    """
    _rank("returns", returns, 2)
    if not len(returns) or last < 1:
        raise InputError(f"the last {last} of {len(returns)} episodes", "at least the last 1 of at least 1 episode")
    mean: FloatArray = returns[-last:].mean(axis=0)
    return mean


def discounted(rewards: FloatArray, discount: float) -> FloatArray:
    """[N, T] what each step's reward and the later ones come to, a later one less by a factor for every step between.

    Args:
      rewards: [N, T] of each step of each episode.
      discount: the factor; with 1 all count alike, with 0 only the step's own.

    Raises:
      InputError: another rank, or a factor that is not from 0 to 1.
    """
    _rank("rewards", rewards, 2)
    if not 0 <= discount <= 1:
        raise InputError(f"discount {discount}", "from 0 to 1")
    returns = np.empty_like(rewards)
    later = np.zeros(len(rewards))
    for step in range(rewards.shape[1] - 1, -1, -1):
        later = rewards[:, step] + discount * later
        returns[:, step] = later
    return returns


def standardised(advantage: FloatArray) -> FloatArray:
    """[B] advantages less their mean, in standard deviations; all 0 if they do not differ.

    Raises:
      InputError: another rank.
    """
    _rank("advantage", advantage, 1)
    if not len(advantage):
        return advantage
    apart = advantage - advantage.mean()
    deviation = float(apart.std())
    # what rounding leaves of equal numbers is no difference, nor is what is too small to be squared
    same = deviation <= max(1e-12 * float(np.abs(advantage).max()), 1e-140)
    return np.zeros_like(apart) if same else np.asarray(apart / deviation, np.float64)


def _rank(name: str, array: FloatArray, rank: int) -> None:
    if array.ndim != rank:
        raise InputError(f"{name} of shape {array.shape}", f"rank {rank}")
