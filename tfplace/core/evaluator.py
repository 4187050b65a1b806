"""Evaluator: placements in, StepCost out. Simulated, Grappler and measured ones are interchangeable."""

from __future__ import annotations

from typing import Protocol

from numpy.typing import ArrayLike

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key, StepCost


class Evaluator(Protocol):
    """Tells what placements of one problem cost. Not to be shared by threads.

    A placement that cannot be run is no error: its cost says so in `failure`.
    """

    @property
    def problem(self) -> Problem:
        """What is placed."""

    @property
    def source(self) -> str:
        """Goes into every `StepCost`: "simulated", "grappler" or "measured"."""

    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """The cost of a step with unit u on device `unit_device[u]`, [U] indices.

        Raises:
          PlacementError: a wrong length or an index out of range.
        """

    def key(self, unit_device: ArrayLike) -> Key:
        """`self(unit_device).key`, by the quickest way there is; the indices need not be checked."""

    def keys(self, unit_devices: ArrayLike) -> tuple[LongArray, FloatArray]:
        """Keys of many placements, [B, U]: bytes over the limits [B] and step seconds [B]."""

    def close(self) -> None:
        """Ends what it started (processes, sessions); calling it again does nothing."""
