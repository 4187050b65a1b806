"""Who found what, case by case, and how that stands against the goals of `auto`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfplace.compare.cells import AT_ONCE, CONSTRUCTIVE, LEARNED, SEARCHES, YARDSTICKS, Case, Facts, Run
from tfplace.compare.journal import Journal

ROOM = 0.8
"""The bound leaves room if it is below this part of the best constructive placement."""


@dataclass(frozen=True)
class Standing:
    """What every placer found in one case.

    Attributes:
      facts: of the case.
      runs: placer -> its runs, one per seed.
    """

    facts: Facts
    runs: Mapping[str, Sequence[Run]]

    def median_s(self, placer: str) -> float:
        """Median over the seeds; infinite if that one fits no memory, NaN if it was not run or could not run."""
        runs = self.runs.get(placer, ())
        if not runs or any(run.trouble for run in runs):
            return math.nan
        return statistics.median(self.found_s(placer))

    def spread_s(self, placer: str) -> tuple[float, float]:
        """Least and largest over the seeds."""
        found = self.found_s(placer)
        return min(found), max(found)

    def end_s(self, placer: str) -> float:
        """What more than half of the runs come to: the median; of an even number the slower of those in the middle."""
        return statistics.median_high(self.found_s(placer))

    def found_s(self, placer: str) -> list[float]:
        """Of each run, in the order of the runs; infinite where nothing fits."""
        return [math.inf if run.step_s is None else run.step_s for run in self.runs[placer]]

    def best_of(self, placers: Iterable[str]) -> tuple[str, float]:
        """The placer with the least median among some, and that median; ("", infinite) if none found what fits."""
        medians = [(self.median_s(name), name) for name in placers]
        usable = [pair for pair in medians if math.isfinite(pair[0])]
        return min(usable)[::-1] if usable else ("", math.inf)

    @property
    def best_constructive(self) -> tuple[str, float]:
        """Of `CONSTRUCTIVE`."""
        return self.best_of(CONSTRUCTIVE)

    @property
    def has_room(self) -> bool:
        """Whether the bound allows 20 % less than the best constructive placement, or nothing constructive fits."""
        return self.facts.bound_s < ROOM * self.best_constructive[1]


def times(seconds: float, other_s: float) -> str:
    """How many times the other, as text; "-" if nobody can tell."""
    return f"{seconds / other_s:.2f}" if other_s > 0 and math.isfinite(seconds) and math.isfinite(other_s) else "-"


def standings(journal: Journal) -> list[Standing]:
    """One per case whose facts are known, in the order in which they came."""
    found: dict[Case, dict[str, list[Run]]] = {case: {} for case in journal.facts}
    for run in journal.runs.values():
        found.setdefault(run.case, {}).setdefault(run.placer, []).append(run)
    return [Standing(facts, found[case]) for case, facts in journal.facts.items()]


@dataclass(frozen=True)
class Goals:
    """How `auto` stands over some cases.

    Attributes:
      cases: how many there are.
      cells: how many results of other placers there are.
      beaten: (case, other placer, auto's median over the other's) wherever another placer's median is lower.
      over_constructive: auto over the best constructive placer, for each case in which the bound leaves room.
      over_bound: auto over the bound, for each case.
      unplaced: cases in which auto found nothing that fits.
    """

    cases: int
    cells: int
    beaten: tuple[tuple[Case, str, float], ...]
    over_constructive: tuple[float, ...]
    over_bound: tuple[float, ...]
    unplaced: tuple[Case, ...]

    @property
    def behind(self) -> int:
        """In how many cases another placer's median is lower."""
        return len({case for case, _, _ in self.beaten})


def goals(rows: Sequence[Standing], placer: str = "auto") -> Goals:
    """The goals of `auto`, or of another placer, from what was found."""
    placed = [row for row in rows if math.isfinite(row.median_s(placer))]
    beaten = [
        (row.facts.case, other, row.median_s(placer) / row.median_s(other))
        for row in placed
        for other in row.runs
        if other != placer and row.median_s(other) < row.median_s(placer)
    ]
    room = [row for row in placed if row.has_room and math.isfinite(row.best_constructive[1])]
    return Goals(
        cases=len(rows),
        cells=sum(other != placer for row in rows for other in row.runs),
        beaten=tuple(beaten),
        over_constructive=tuple(row.median_s(placer) / row.best_constructive[1] for row in room),
        over_bound=tuple(row.median_s(placer) / row.facts.bound_s for row in placed),
        unplaced=tuple(row.facts.case for row in rows if row.median_s(placer) == math.inf),
    )


def over_roomy(rows: Sequence[Standing], placer: str = "auto") -> tuple[float, ...]:
    """A placer's step with tight memory over its step without, for each case in which it found both."""
    found = {row.facts.case: row.median_s(placer) for row in rows if math.isfinite(row.median_s(placer))}
    pairs = [(case, replace(case, tight=False)) for case in found if case.tight]
    return tuple(found[case] / found[own] for case, own in pairs if own in found)


def seed_spread(rows: Sequence[Standing], placer: str) -> tuple[float, ...]:
    """A placer's slowest seed over its fastest, for each case in which several found what fits."""
    spreads = [row.spread_s(placer) for row in rows if len(row.runs.get(placer, ())) > 1]
    return tuple(most / least for least, most in spreads if math.isfinite(most))


def placers_of(rows: Sequence[Standing]) -> list[str]:
    """Every placer that was run: constructive ones first, then searches, then others by name."""
    known = (*CONSTRUCTIVE, *AT_ONCE, *SEARCHES, *LEARNED, *YARDSTICKS)
    ran = {name for row in rows for name in row.runs}
    return [name for name in known if name in ran] + sorted(ran - {*known})
