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

    What an evaluator may have besides: `critical_path` and `fitting` (see `tfplace.simulation.evaluate.Simulator`);
    `objective`, what it counts, if not step times; `options`, by which it simulates; `at_once`, how many placements it
    evaluates side by side, if a search is not to ask for more (one that measures is asked for one); `scale_s`, by which
    it multiplies measured ratios, which a search that goes on sets to what it was.
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

    @property
    def bound_s(self) -> float:
        """No placement's seconds can be lower; 0 if nothing is known."""

    def key(self, unit_device: ArrayLike, limit_s: float = ...) -> Key:
        """`self(unit_device).key`, by the quickest way there is; the indices need not be checked.

        Args:
          unit_device: [U] indices.
          limit_s: a longer step may be given up; its key is then `(FAILED_BYTES, infinite)`.
        """

    def keys(self, unit_devices: ArrayLike, limit_s: float = ...) -> tuple[LongArray, FloatArray]:
        """Keys of many placements, [B, U]: bytes over the limits [B] and step seconds [B]."""

    def close(self) -> None:
        """Ends what it started (processes, sessions); calling it again does nothing."""
