"""LargestBatch: the largest batch whose step fits some devices, and what the sizes on the way came to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tfplace.core.plan import Plan, PlanRow
from tfplace.registry import SERVICES


@dataclass(frozen=True)
class BatchTried:
    """A batch size that was planned.

    Attributes:
      examples: of the batch.
      fits: whether a way fits that may be taken.
      step_s: of that way, simulated; infinite where none fits.
      way: its name, or what is missing.
    """

    examples: int
    fits: bool
    step_s: float
    way: str

    @property
    def rate(self) -> float:
        """Examples a second; 0 where nothing fits."""
        return self.examples / self.step_s if self.fits and self.step_s > 0 else 0.0


@dataclass(frozen=True, eq=False)
class LargestBatch:
    """The answer to how many examples a step can have.

    Attributes:
      examples: of the largest batch that fits, of those that were tried.
      plan: of that batch.
      tried: all sizes, smallest first.
      notes: what there is to say of the search.
    """

    examples: int
    plan: Plan
    tried: tuple[BatchTried, ...]
    notes: tuple[str, ...] = ()

    @property
    def row(self) -> PlanRow:
        """How a step of the largest batch is run."""
        assert self.plan.chosen is not None
        return self.plan.chosen

    @cached_property
    def fastest(self) -> BatchTried:
        """The size with most examples a second; of equal ones the smallest."""
        return max(self.tried, key=lambda one: one.rate)

    def summary(self) -> str:
        """All sizes as a table of text, and the answer."""
        text: str = SERVICES["largest_batch_summary"](self)
        return text
