"""The one rule by which a claim holds, from what a paper says and what was found in each case."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from research.suites.versus import factor, geometric_mean, percent

Interval = tuple[float, float]
"""The least and the most that a case's number can be, for all that results tell; mostly the same."""

RULE = """\
Steps are simulated; percent is by how much a step is shorter (1 - new/old); means are geometric, without 0x and what
does not fit. A claim *holds* if our most, mean or least, whichever the paper tells, reaches its number, and as large
a part of the cases is ahead (above 0 % or 1x) as in the paper, or more than half where that is not known. *Direction
only* is the latter without the former, *number only* the former without the latter. *At least* is a limit: ahead are
the cases within it, and the claim *holds* in all of them, *mostly* in more than half. *Open* is what these results
do not tell."""


@dataclass(frozen=True)
class Published:
    """What a paper says.

    Attributes:
      number: percent by which a step is shorter, or how many times.
      unit: which of the two.
      of: what of the cases is said to reach it: the best of them, their mean, or the worst of them.
      sure: where the number is from.
      ahead: in how many of how many cases of the paper its method is ahead; None if that is not known.
      words: what it says where it has no number, and the number is how we read it.
    """

    number: float
    unit: Literal["%", "x"]
    of: Literal["most", "mean", "least"]
    sure: str
    ahead: tuple[int, int] | None = None
    words: str = ""

    @property
    def text(self) -> str:
        """The number, with how sure it is."""
        said = {"most": "up to", "mean": "mean", "least": "at least"}[self.of]
        read = f"{self.words}, read as " if self.words else ""
        ahead = f", ahead in {self.ahead[0]} of {self.ahead[1]}" if self.ahead else ""
        return f"{read}{said} {self.shown(self.number)}{ahead} ({self.sure})"

    def shown(self, value: float) -> str:
        """Such a number as text."""
        return percent(value) if self.unit == "%" else factor(value)

    def ahead_in(self, values: Sequence[float]) -> int:
        """In how many cases the method is ahead, or within the limit."""
        if self.of == "least":
            return sum(value >= self.number for value in values)
        return sum(value > (0 if self.unit == "%" else 1) for value in values)

    def reached_by(self, values: Sequence[float]) -> float:
        """Of some cases the number that is to be compared with the paper's; NaN if there is none."""
        if self.of == "least":
            return min(values)
        finite = [value for value in values if math.isfinite(value)]
        if self.of == "most":
            return max(finite, default=math.nan)
        if self.unit == "%":
            return 100 * (1 - geometric_mean([1 - value / 100 for value in finite]))
        return geometric_mean([value for value in finite if value > 0])

    def verdict(self, values: Sequence[float]) -> str:
        """By `RULE`, of some cases of which all is known."""
        reached = self.reached_by(values) >= self.number
        part = Fraction(self.ahead_in(values), len(values))
        enough = part > Fraction(1, 2) if self.ahead is None else part >= Fraction(*self.ahead)
        if enough:
            return "holds" if reached else "mostly" if self.of == "least" else "direction only"
        return "number only" if reached else "does not hold"


@dataclass(frozen=True)
class Finding:
    """What is compared for a claim, and what came out.

    Attributes:
      compared: in words.
      published: the paper's.
      found: ours, of each case.
    """

    compared: str
    published: Published
    found: Sequence[Interval]

    @property
    def here(self) -> str:
        """Our number in the terms of the paper's, then median, least and most of the cases, and how many are ahead."""
        if not self.found:
            return "not run"
        lows, highs = zip(*self.found, strict=True)
        least, most = map(self.published.shown, (min(lows), max(highs)))
        said = f"{self._between(*map(statistics.median, (lows, highs)))} ({least} to {most}), "
        if self.published.of == "mean":
            said = f"mean {self._between(*map(self.published.reached_by, (lows, highs)))}, {said}"
        ahead = dict.fromkeys(str(self.published.ahead_in(values)) for values in (lows, highs))
        return f"{said}{' to '.join(ahead)} of {len(self.found)}"

    @property
    def verdict(self) -> str:
        """By `RULE`."""
        if not self.found:
            return "not known"
        least, most = map(self.published.verdict, zip(*self.found, strict=True))
        return least if least == most else "open"

    def _between(self, low: float, high: float) -> str:
        return " to ".join(dict.fromkeys(map(self.published.shown, (low, high))))
