"""The role of an evaluator: placements in, StepCost out. Simulated, Grappler and measured ones are interchangeable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.core.critical_path import CriticalPath
from tfplace.core.problem import Problem
from tfplace.core.stepcost import STEP_TIME, Key, StepCost


class Evaluator(ABC):
    """Tells what placements of one problem cost. Threads do not share one.

    A placement that cannot run is no error: its cost says so in `failure`.

    What an evaluator offers besides costs has a default here, so a small one needs `problem`, `source` and `__call__`.

    Attributes:
      problem: what is placed.
      source: goes into every `StepCost`: "simulated", "grappler" or "measured".
      objective: what the seconds of a key count: `tfplace.core.stepcost.STEP_TIME` or `THROUGHPUT`.
      options: what is simulated, with a `repr` that tells all of it; None where nothing is.
      batch_limit: the most placements that a search should hand to `keys` at once, so that it soon sees Ctrl-C or the
        end of its time; None for any number. One that takes seconds for each placement says how many run side by side.
      scale_s: the seconds that measured ratios are multiplied by; None for none. A search that resumes sets it to what
        it was.
    """

    problem: Problem
    source: ClassVar[str]
    objective: ClassVar[str] = STEP_TIME
    options: object = None
    batch_limit: int | None = None
    scale_s: float | None = None

    @abstractmethod
    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """The cost of a step with unit u on device `unit_device[u]`, [U] indices.

        Raises:
          PlacementError: a wrong length or an index out of range.
        """

    def key(self, unit_device: ArrayLike, limit_s: float = np.inf) -> Key:
        """`self(unit_device).key`, by the quickest way there is; the indices need not be checked.

        Args:
          unit_device: [U] indices.
          limit_s: a longer step may be given up; its key is then `(FAILED_BYTES, infinite)`.
        """
        return self(unit_device).key

    def keys(self, unit_devices: ArrayLike, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """Keys of many placements, [B, U]: bytes over the limits [B] and step seconds [B]."""
        keys = [self.key(row, limit_s) for row in np.asarray(unit_devices)]
        return np.array([over for over, _ in keys], np.int64), np.array([step_s for _, step_s in keys], np.float64)

    @property
    def bound_s(self) -> float:
        """No placement's seconds can be lower; 0 if nothing is known."""
        return 0.0

    @property
    def compile(self) -> str:
        """How the steps are run that it tells the costs of: `tfplace.core.compilation.NONE` or `XLA`."""
        return self.problem.compile

    @property
    def fitting(self) -> Problem:
        """The problem without devices on which a unit never fits, if that is known; the same units and devices."""
        return self.problem

    def critical_path(self, unit_device: ArrayLike) -> tuple[CriticalPath, Key] | None:
        """What the step waits for, and the key of that placement; None from an evaluator that cannot tell.

        Args:
          unit_device: [U] indices, which need not be checked.
        """
        return None

    def otherwise(self, unit_device: ArrayLike) -> StepCost | None:
        """The cost of a placement run the other way; None from an evaluator that cannot tell.

        That is op by op where the costs of the problem are of a compiled step, and compiled where they are not.

        Args:
          unit_device: [U] indices.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most start nothing
        """Ends what it started (processes, sessions, threads); calling it again does nothing."""
