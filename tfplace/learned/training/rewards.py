"""What a placement earns a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.errors import InputError
from tfplace.local_search.penalized_cost import PenalizedCost

Scale = Literal["sqrt", "log", "linear"]

_SCALES: dict[str, Callable[[FloatArray], FloatArray]] = {"sqrt": np.sqrt, "log": np.log, "linear": np.asarray}
_LEAST = 1e-12
"""A step that takes no time has no logarithm."""


@dataclass(frozen=True)
class RewardSettings:
    """How step times become rewards.

    Attributes:
      scale: "sqrt", the papers' (it tames outliers: Mirhoseini 2017, section 3), "log", or "linear".
      failing: what a placement that does not run counts as, in units (see `Reward`): the failing signal of Mirhoseini
        2017, section 3.1. 100, of which the square root is 10, is that of TensorFlow's shipped controller and of GDP's
        reward. Nothing in its batch counts as worse.
      graded: whether what runs out of memory counts as longer by the price of the missing bytes, which rises while most
        of what is drawn does; see `PenalizedCost`. The papers' failing signal, which is the same however many bytes are
        missing, teaches nothing while everything fails.

    Raises:
      InputError: an unknown scale, or a signal that is not above 0.
    """

    scale: Scale = "sqrt"
    failing: float = 100.0
    graded: bool = True

    def __post_init__(self) -> None:
        if self.scale not in _SCALES:
            raise InputError(f"scale {self.scale!r}", f"one of {', '.join(_SCALES)}")
        if not 0 < self.failing < np.inf:
            raise InputError(f"failing {self.failing}", "a finite number above 0")


class Reward:
    """Minus a step time on a scale.

    The papers' rewards are of seconds, and their models take about one. Here a unit is the seconds of all ops, each on
    its quickest device, so that a model of a millisecond has the same rewards.

    Args:
      context: of the search.
      settings: see there.
      weight: of the price, for a search that goes on.
    """

    def __init__(self, context: SearchContext, settings: RewardSettings, weight: float = 1.0) -> None:
        self.settings = settings
        self.unit_s = _unit_s(context.problem)
        self._price = PenalizedCost(context, (0, self.unit_s), weight)

    def __call__(self, over: LongArray, step_s: FloatArray) -> FloatArray:
        """[B] rewards.

        Args:
          over: [B] bytes over the limits.
          step_s: [B] step seconds; infinite if it did not run.

        Raises:
          InputError: arrays of other shapes.
        """
        if over.ndim != 1 or over.shape != step_s.shape:
            raise InputError(f"bytes and seconds of shapes {over.shape} and {step_s.shape}", "two arrays of shape [B]")
        units = np.maximum(self._price.rows(over, step_s) / self.unit_s, _LEAST)
        fails = ~np.isfinite(step_s) if self.settings.graded else failed(over, step_s)
        units[fails] = max(self.settings.failing, float(units[~fails].max(initial=0.0)))
        return np.asarray(-_SCALES[self.settings.scale](units), np.float64)

    def adapt(self, over: LongArray) -> None:
        """Has the price of a missing byte follow the batch: up if half of it or more does not fit, else down."""
        if len(over):
            self._price.adapt(fits=bool(np.median(over) == 0))

    @property
    def weight(self) -> float:
        """Of the price, kept for a search that goes on."""
        return self._price.weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._price.weight = weight

    @property
    def worst(self) -> float:
        """The reward of a placement that does not run."""
        return float(-_SCALES[self.settings.scale](np.array([self.settings.failing]))[0])


def failed(over: LongArray, step_s: FloatArray) -> BoolArray:
    """[B] which placements do not fit, or do not run."""
    return np.asarray((over > 0) | ~np.isfinite(step_s), np.bool_)


def _unit_s(problem: Problem) -> float:
    seconds = float(problem.unit_seconds.min(axis=1).sum())
    return seconds if seconds > 0 else 1.0
