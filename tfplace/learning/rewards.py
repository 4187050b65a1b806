"""What a placement earns a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, LongArray
from tfplace.errors import InputError

Scale = Literal["sqrt", "log", "seconds"]

_SCALES: dict[str, Callable[[FloatArray], FloatArray]] = {"sqrt": np.sqrt, "log": np.log, "seconds": np.asarray}
_GIB = 2.0**30
_LEAST_S = 1e-12
"""A step that takes no time has no logarithm."""


@dataclass(frozen=True)
class Reward:
    """Minus a step time, on a scale; less for what does not fit.

    A placement that does not run, or does not fit and is not graded, counts as one of `failing_s` seconds: the failing
    signal of Mirhoseini 2017, section 3.1. Graded, each missing GiB makes a step longer by `penalty` of it, and none is
    longer than `failing_s`: as Placeto does it (Addanki et al. 2019, section 3.1), there in seconds for each GB.

    Attributes:
      scale: "sqrt", the papers' (it tames outliers), "log", or "seconds" as they are.
      failing_s: seconds of a placement that fails, above 0.
      penalty: part of the step time that each missing GiB adds; None where what does not fit fails.

    Raises:
      InputError: an unknown scale, or numbers out of range.
    """

    scale: Scale = "sqrt"
    failing_s: float = 100.0
    penalty: float | None = None

    def __post_init__(self) -> None:
        if self.scale not in _SCALES:
            raise InputError(f"scale {self.scale!r}", f"one of {', '.join(_SCALES)}")
        if not 0 < self.failing_s < np.inf:
            raise InputError(f"failing_s {self.failing_s}", "seconds above 0")
        if self.penalty is not None and self.penalty < 0:
            raise InputError(f"penalty {self.penalty}", "at least 0, or None")

    def __call__(self, over: LongArray, step_s: FloatArray) -> FloatArray:
        """[B] rewards.

        Args:
          over: [B] bytes over the limits.
          step_s: [B] step seconds; infinite if it did not run.

        Raises:
          InputError: arrays of other shapes.
        """
        if over.ndim != 1 or over.shape != step_s.shape:
            raise InputError(f"bytes and seconds of shapes {over.shape} and {step_s.shape}", "[B] twice")
        seconds = np.maximum(step_s, _LEAST_S)
        if self.penalty is None:
            seconds = np.where(self.failed(over, step_s), self.failing_s, seconds)
        else:
            seconds = np.minimum(seconds * (1 + self.penalty * (over / _GIB)), self.failing_s)
        return np.asarray(-_SCALES[self.scale](seconds), np.float64)

    @property
    def worst(self) -> float:
        """The reward of a placement that fails."""
        return float(-_SCALES[self.scale](np.array([self.failing_s]))[0])

    def failed(self, over: LongArray, step_s: FloatArray) -> BoolArray:
        """[B] which placements do not run, or do not fit."""
        return np.asarray((over > 0) | ~np.isfinite(step_s), np.bool_)
