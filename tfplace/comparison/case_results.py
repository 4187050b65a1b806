"""Who found what, case by case, and how that stands against the goals of `auto`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfplace.comparison.cells import AT_ONCE, CONSTRUCTIVE, LEARNED, SEARCHES, YARDSTICKS, Case, Facts, Run
from tfplace.comparison.journal import Journal

ROOM = 0.8
"""The bound leaves room if it is below this part of the best constructive placement."""


@dataclass(frozen=True)
class CaseResults:
    """What every placer found in one case.

    Attributes:
      facts: of the case.
      runs: placer -> its runs, one per seed.
    """

    facts: Facts
    runs: Mapping[str, Sequence[Run]]

    def ran(self, placer: str) -> list[Run]:
        """Its runs that could run."""
        return [run for run in self.runs.get(placer, ()) if not run.trouble]

    def found_s(self, placer: str) -> list[float]:
        """What each seed that could run found; infinite where that fits no memory."""
        return [math.inf if run.step_s is None else run.step_s for run in self.ran(placer)]

    def median_s(self, placer: str) -> float:
        """Median over the seeds that could run; infinite if that one fits no memory, NaN if there is none."""
        found = self.found_s(placer)
        return statistics.median(found) if found else math.nan

    def spread_s(self, placer: str) -> tuple[float, float]:
        """Least and largest over the seeds that could run; NaN if there is none."""
        found = self.found_s(placer) or [math.nan]
        return min(found), max(found)

    def end_s(self, placer: str) -> float:
        """What more than half of the runs come to: the median; of an even number the slower of those in the middle."""
        found = self.found_s(placer)
        return statistics.median_high(found) if found else math.nan

    def trouble(self, placer: str) -> str:
        """Why runs of a placer failed, and how many if not all did; empty if none did."""
        runs = self.runs.get(placer, ())
        why = [run.trouble for run in runs if run.trouble]
        if not why:
            return ""
        return why[0] if len(why) == len(runs) else f"{_failed(why, runs)}: {why[0]}"

    def with_failed(self, placer: str, cell: str) -> str:
        """What is said of a placer's runs, and how many are missing there because they failed."""
        troubled = [run for run in self.runs.get(placer, ()) if run.trouble]
        return f"{cell}, {_failed(troubled, self.runs[placer])}" if troubled and self.ran(placer) else cell

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


def _failed(some: Sequence[object], runs: Sequence[object]) -> str:
    return f"{len(some)} of {len(runs)} seeds failed"


def troubles(row: CaseResults) -> list[str]:
    """A line for each placer of which a run failed."""
    found = ((name, row.trouble(name)) for name in row.runs)
    return [f"{name}{':' if row.ran(name) else ' was not run:'} {trouble}" for name, trouble in found if trouble]


def seeds_text(runs: Sequence[Run]) -> str:
    """How many runs of a placer there are, and how many of them do not count as others do.

    Where none fits the step says so already.
    """
    done = [run for run in runs if not run.trouble]
    unfit = sum(run.step_s is None for run in done)
    text = str(len(runs)) if len(done) == len(runs) else f"{len(done)} of {len(runs)} ran"
    return text if unfit in (0, len(done)) else f"{text}, of which {unfit} {'does' if unfit == 1 else 'do'} not fit"


def seeds_failed(rows: Iterable[CaseResults]) -> list[str]:
    """A line for each case and placer of which some seeds failed and others are what is told."""
    named = [(row, name, row.with_failed(name, name)) for row in rows for name in row.runs]
    return [f"{row.facts.case}: {said}" for row, name, said in named if said != name]


def over_single(row: CaseResults, placer: str) -> str:
    """A placer's median step over that of the best single device, as text."""
    median_s = row.median_s(placer)
    if math.isnan(median_s):
        return "not run"
    return _over_single(row, median_s) if math.isfinite(median_s) else "does not fit"


def bound_over_single(row: CaseResults) -> str:
    """The bound over the step of the best single device, as text."""
    return _over_single(row, row.facts.bound_s)


def _over_single(row: CaseResults, seconds: float) -> str:
    """The best single device is the host if no accelerator holds everything."""
    one_s = row.median_s("single")
    return "single not run" if math.isnan(one_s) else times(seconds, one_s)


def times(seconds: float, other_s: float) -> str:
    """How many times the other, as text; "-" if nobody can tell."""
    return f"{seconds / other_s:.2f}" if other_s > 0 and math.isfinite(seconds) and math.isfinite(other_s) else "-"


def read_case_results(journal: Journal) -> list[CaseResults]:
    """One per case whose facts are known, in the order in which they came."""
    found: dict[Case, dict[str, list[Run]]] = {case: {} for case in journal.facts}
    for run in journal.runs.values():
        found.setdefault(run.case, {}).setdefault(run.placer, []).append(run)
    return [CaseResults(facts, found[case]) for case, facts in journal.facts.items()]


@dataclass(frozen=True)
class Goals:
    """How `auto` stands over some cases.

    Attributes:
      cases: in how many it was run.
      cells: how many results of other placers there are in these.
      beaten: (case, other placer, auto's median over the other's) wherever another placer's median is lower; infinite
        where what auto found does not fit.
      over_constructive: auto over the best constructive placer, for each case in which the bound leaves room.
      over_bound: auto over the bound, for each case in which that is not zero.
      nearest: (graph, other placer, auto over it) of each graph, the placer over which auto's geometric mean over all
        cases of the graph is highest, of those that found what fits in all of them; the mean is infinite where auto did
        not.
      unplaced: cases in which auto found nothing that fits.
    """

    cases: int
    cells: int
    beaten: tuple[tuple[Case, str, float], ...]
    over_constructive: tuple[float, ...]
    over_bound: tuple[float, ...]
    nearest: tuple[tuple[str, str, float], ...]
    unplaced: tuple[Case, ...]

    @property
    def behind(self) -> int:
        """In how many cases another placer's median is lower."""
        return len({case for case, _, _ in self.beaten})

    @property
    def graphs_behind(self) -> tuple[tuple[str, str, float], ...]:
        """Of `nearest` the graphs on which another placer is ahead over all of their cases."""
        return tuple(one for one in self.nearest if one[2] > 1)


def goals(rows: Sequence[CaseResults], placer: str = "auto") -> Goals:
    """The goals of `auto`, or of another placer, from what was found."""
    rows = [row for row in rows if row.ran(placer)]
    placed = [row for row in rows if math.isfinite(row.median_s(placer))]
    beaten = [
        (row.facts.case, other, _ratio(row.median_s(placer), row.median_s(other)))
        for row in rows
        for other in row.runs
        if other != placer and row.median_s(other) < row.median_s(placer)
    ]
    room = [row for row in placed if row.has_room and math.isfinite(row.best_constructive[1])]
    return Goals(
        cases=len(rows),
        cells=sum(other != placer and bool(row.ran(other)) for row in rows for other in row.runs),
        beaten=tuple(beaten),
        over_constructive=tuple(row.median_s(placer) / row.best_constructive[1] for row in room),
        over_bound=over_bound(placed, placer),
        nearest=_nearest(rows, placer),
        unplaced=tuple(row.facts.case for row in rows if row.median_s(placer) == math.inf),
    )


def _nearest(rows: Sequence[CaseResults], placer: str) -> tuple[tuple[str, str, float], ...]:
    graphs: dict[str, list[CaseResults]] = {}
    for row in rows:
        graphs.setdefault(row.facts.case.graph, []).append(row)
    found = []
    for graph, cases in graphs.items():
        over = {
            other: statistics.geometric_mean(_ratio(row.median_s(placer), row.median_s(other)) for row in cases)
            for other in cases[0].runs
            if other != placer and all(0 < row.median_s(other) < math.inf and row.median_s(placer) > 0 for row in cases)
        }
        if over:
            other = max(over, key=lambda name: over[name])
            found.append((graph, other, over[other]))
    return tuple(found)


def over_bound(rows: Sequence[CaseResults], placer: str) -> tuple[float, ...]:
    """A placer's step over the bound, for each case in which it found what fits and the bound is not zero."""
    fits = [row for row in rows if math.isfinite(row.median_s(placer)) and row.facts.bound_s > 0]
    return tuple(row.median_s(placer) / row.facts.bound_s for row in fits)


def _ratio(seconds: float, other_s: float) -> float:
    return seconds / other_s if other_s > 0 else math.inf


def over_roomy(rows: Sequence[CaseResults], placer: str = "auto") -> tuple[float, ...]:
    """A placer's step with tight memory over its step without, for each case in which it found both."""
    found = {row.facts.case: row.median_s(placer) for row in rows if math.isfinite(row.median_s(placer))}
    pairs = [(case, replace(case, tight=False)) for case in found if case.tight]
    return tuple(found[case] / found[own] for case, own in pairs if found.get(own, 0.0) > 0)


def seed_spread(rows: Sequence[CaseResults], placer: str) -> tuple[float, ...]:
    """A placer's slowest seed over its fastest, for each case in which several found what fits."""
    spreads = [row.spread_s(placer) for row in rows if len(row.ran(placer)) > 1]
    return tuple(most / least for least, most in spreads if math.isfinite(most) and least > 0)


def placers_of(rows: Sequence[CaseResults]) -> list[str]:
    """Every placer that was run: constructive ones first, then searches, then others by name."""
    known = (*CONSTRUCTIVE, *AT_ONCE, *SEARCHES, *LEARNED, *YARDSTICKS)
    ran = {name for row in rows for name in row.runs}
    return [name for name in known if name in ran] + sorted(ran - {*known})
