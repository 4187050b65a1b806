"""One placer against another over several cases, those that do not fit included."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tfplace.comparison.case_results import CaseResults

UNLEARNED = ("random_search", "untrained", "annealing")
"""Placers that learn nothing and evaluate as much as those that do."""


@dataclass(frozen=True)
class Versus:
    """How a placer stands against another.

    Attributes:
      ratios: its median step over the other's, of each case in which both found what fits.
      ahead: cases in which its step is shorter, or it alone found what fits.
      cases: in which both were run.
    """

    ratios: tuple[float, ...]
    ahead: int
    cases: int

    @property
    def mean(self) -> float:
        """Geometric mean of the ratios; NaN without any."""
        return geometric_mean(self.ratios)

    @property
    def middle(self) -> float:
        """Median of the ratios; NaN without any."""
        return statistics.median(self.ratios) if self.ratios else math.nan

    def faster_than(self, other: str) -> str:
        """By how many percent."""
        mean, middle = (percent(100 * (1 - ratio)) for ratio in (self.mean, self.middle))
        return f"{mean} faster than {other} {self._and(middle)}"

    def times(self, other: str) -> str:
        """How many times the step."""
        mean, middle = ("-" if math.isnan(ratio) else f"{ratio:.2f} times" for ratio in (self.mean, self.middle))
        return f"{mean} the step of {other} {self._and(middle)}"

    def _and(self, middle: str) -> str:
        unlike = f" of {len(self.ratios)} cases in which both fit" if len(self.ratios) < self.cases else ""
        return f"(geometric mean{unlike}; {middle} in the median case), faster in {self.ahead} of {self.cases}"


def versus(rows: Sequence[CaseResults], placer: str, other: str) -> Versus:
    """Compares medians over the seeds, case by case."""
    pairs = [(row.median_s(placer), row.median_s(other)) for row in rows]
    pairs = [pair for pair in pairs if not any(map(math.isnan, pair))]
    return Versus(
        tuple(mine / theirs for mine, theirs in pairs if math.isfinite(mine) and math.isfinite(theirs)),
        sum(mine < theirs for mine, theirs in pairs),
        len(pairs),
    )


def steps_over(rows: Sequence[CaseResults], placer: str, others: Sequence[str]) -> list[str]:
    """A line for each of the others that was run, with its step against the placer's."""
    found = ((other, versus(rows, placer, other)) for other in others)
    return [f"{placer} takes {against.times(other)}" for other, against in found if against.cases]


def gain(mine_s: float, theirs_s: float) -> float | None:
    """Percent by which a step is shorter than another.

    Infinite if only the first fits, minus infinite if only the second does; None if neither does, or one was not run.
    """
    if math.isnan(mine_s) or math.isnan(theirs_s) or (math.isinf(mine_s) and math.isinf(theirs_s)):
        return None
    if math.isinf(mine_s):
        return -math.inf
    return math.inf if math.isinf(theirs_s) else 100 * (1 - mine_s / theirs_s)


def percent(gained: float | None) -> str:
    """A gain as text."""
    if gained is None or math.isnan(gained):
        return "-"
    if math.isinf(gained):
        return "only it fits" if gained > 0 else "does not fit"
    return f"{gained:.1f} %"


def factor(ratio: float) -> str:
    """How many times, as text."""
    return f"{ratio:.2g}x" if ratio < 99.5 else f"{ratio:,.0f}x"


def geometric_mean(values: Sequence[float]) -> float:
    """NaN without any."""
    return statistics.geometric_mean(values) if values else math.nan
