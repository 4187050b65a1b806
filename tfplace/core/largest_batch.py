"""LargestBatch: the largest batch whose step fits on some devices, and the result for each size tried."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tfplace.core.plan import Plan, PlanRow
from tfplace.registry import SERVICES


@dataclass(frozen=True)
class BatchTried:
    """The result for one batch size.

    Attributes:
      examples: number of examples in the batch.
      fits: whether a row that can be chosen fits.
      step_s: simulated seconds of that row; infinite if none fits.
      way: name of that row, or what is missing.
    """

    examples: int
    fits: bool
    step_s: float
    way: str

    @property
    def rate(self) -> float:
        """Examples per second; 0 if nothing fits."""
        return self.examples / self.step_s if self.fits and self.step_s > 0 else 0.0


@dataclass(frozen=True, eq=False)
class LargestBatch:
    """The largest batch that fits, and its plan.

    Attributes:
      examples: number of examples in the largest batch tried that fits.
      plan: the plan for that batch.
      tried: results for all sizes tried, smallest first.
      notes: remarks on the search.
    """

    examples: int
    plan: Plan
    tried: tuple[BatchTried, ...]
    notes: tuple[str, ...] = ()

    @property
    def row(self) -> PlanRow:
        """The chosen row of the plan for the largest batch."""
        assert self.plan.chosen is not None
        return self.plan.chosen

    @cached_property
    def fastest(self) -> BatchTried:
        """The size with the most examples per second; the smallest of equal ones."""
        return max(self.tried, key=lambda one: one.rate)

    def summary(self) -> str:
        """All sizes as a text table, and the answer."""
        text: str = SERVICES["largest_batch_summary"](self)
        return text
