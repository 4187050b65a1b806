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
    """Computes the costs of placements of one problem. Not thread-safe.

    A placement that cannot run does not raise: the `failure` of its cost says why.

    Only `problem`, `source` and `__call__` are required. Everything else has a default.

    Attributes:
      problem: the problem whose placements it evaluates.
      source: goes into every `StepCost`: "simulated", "grappler" or "measured".
      objective: what the seconds of a key are: `tfplace.core.stepcost.STEP_TIME` or `THROUGHPUT`.
      options: the simulation options, with a `repr` that shows all of them; None if nothing is simulated.
      batch_limit: the most placements that a search should pass to `keys` at once, so that it soon notices Ctrl-C and
        the end of its time; None for no limit. If a placement takes seconds, use the number that runs in parallel.
      scale_s: seconds by which measured ratios are multiplied; None if there are no ratios. A search that resumes sets
        it to its earlier value.
    """

    problem: Problem
    source: ClassVar[str]
    objective: ClassVar[str] = STEP_TIME
    options: object = None
    batch_limit: int | None = None
    scale_s: float | None = None

    @abstractmethod
    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """The cost of a step with unit u on device `unit_device[u]`.

        Args:
          unit_device: [U] device indices.

        Raises:
          PlacementError: a wrong length or an index out of range.
        """

    def key(self, unit_device: ArrayLike, limit_s: float = np.inf) -> Key:
        """`self(unit_device).key`, computed the fastest way. Implementations need not check the indices.

        Args:
          unit_device: [U] device indices.
          limit_s: the evaluator may give up on a step that takes longer; the key is then `(FAILED_BYTES, infinite)`.
        """
        return self(unit_device).key

    def keys(self, unit_devices: ArrayLike, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """Keys of many placements: bytes over the limits [B] and step seconds [B].

        Args:
          unit_devices: [B, U] device indices.
          limit_s: as in `key`.
        """
        keys = [self.key(row, limit_s) for row in np.asarray(unit_devices)]
        return np.array([over for over, _ in keys], np.int64), np.array([step_s for _, step_s in keys], np.float64)

    @property
    def bound_s(self) -> float:
        """Lower bound of the seconds of all placements; 0 if none is known."""
        return 0.0

    @property
    def compile(self) -> str:
        """How the evaluated steps run: `tfplace.core.compilation.NONE` (op by op) or `XLA` (compiled)."""
        return self.problem.compile

    @property
    def fitting(self) -> Problem:
        """The problem without devices on which a unit never fits, if they are known. Units and devices are the same."""
        return self.problem

    def critical_path(self, unit_device: ArrayLike) -> tuple[CriticalPath, Key] | None:
        """The critical path of a step, and the placement's key; None if the evaluator does not support it.

        Args:
          unit_device: [U] device indices. Implementations need not check them.
        """
        return None

    def otherwise(self, unit_device: ArrayLike) -> StepCost | None:
        """The cost of a placement run the other way; None if the evaluator does not support it.

        The other way is op by op if the problem has the costs of a compiled step, otherwise compiled.

        Args:
          unit_device: [U] device indices.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most start nothing
        """Ends what it started (processes, sessions, threads); calling it again does nothing."""
