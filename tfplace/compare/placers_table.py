"""Standings as text: one line a case, and every cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfplace.compare.cells import Case
from tfplace.compare.standings import Goals, Standing, goals, placers_of
from tfplace.compare.tables import table
from tfplace.units import format_seconds

_SHOWN = ("random_search", "hill_climbing", "annealing", "local_search", "auto")
_HEAD = ("graph", "devices", "ops", "bound", "single", "best constructive", *_SHOWN, "auto / bound", "best of all")


def compare_tables(rows: Sequence[Standing]) -> str:
    """All there is to say: both tables and the goals."""
    return "\n\n".join((summary_table(rows), full_table(rows), f"```\n{goals_text(goals(rows))}\n```"))


def summary_table(rows: Sequence[Standing]) -> str:
    """A line for each case: bound, single device, best constructive placer, searches (medians over the seeds)."""
    return table(_HEAD, map(_summary, rows))


def _summary(row: Standing) -> tuple[str, ...]:
    case, bound = row.facts.case, row.facts.bound_s
    name, best = row.best_constructive
    winner, least = row.best_of(row.runs)
    ties = [other for other in placers_of([row]) if row.median_s(other) <= least * (1 + 1e-9)]
    return (
        case.graph,
        _devices(case),
        f"{row.facts.ops:,}",
        format_seconds(bound),
        _seconds(row.median_s("single")),
        f"{_seconds(best)} ({name})" if name else "does not fit",
        *(_seconds(row.median_s(other)) for other in _SHOWN),
        _ratio(row.median_s("auto") / bound),
        "auto" if "auto" in ties else winner,
    )


def full_table(rows: Sequence[Standing]) -> str:
    """Every cell: median over the bound, and the spread over the seeds where there are several."""
    names = placers_of(rows)
    lines = ((str(row.facts.case), *(_cell(row, name) for name in names)) for row in rows)
    return table(("step over bound", *names), lines)


def _cell(row: Standing, placer: str) -> str:
    if math.isnan(row.median_s(placer)):
        return "-"
    median = _ratio(row.median_s(placer) / row.facts.bound_s)
    low, high = row.spread_s(placer)
    if len(row.runs[placer]) < 2 or not math.isfinite(high):
        return median
    return f"{median} ({low / row.facts.bound_s:.2f}..{high / row.facts.bound_s:.2f})"


def goals_text(found: Goals) -> str:
    """The goals in sentences, met or not."""
    lines = [
        f"auto over the best constructive placer: {_ratio(found.over_constructive)} (geometric mean of the "
        f"{found.with_room} cases of {found.cases} in which the bound leaves room)",
        f"auto over the bound: {_ratio(found.over_bound)} (geometric mean)",
        f"auto is beaten in {len(found.beaten)} of {found.cells} cells"
        + (f", in {len({case for case, _, _ in found.beaten})} of {found.cases} cases:" if found.beaten else ""),
        *(f"  {case}: {other}, auto takes {factor:.3f} times as long" for case, other, factor in found.beaten),
    ]
    lines += [f"auto found nothing that fits: {case}" for case in found.unplaced]
    return "\n".join(lines)


def _devices(case: Case) -> str:
    return case.topology + (", tight" if case.tight else "")


def _seconds(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    return format_seconds(seconds) if math.isfinite(seconds) else "does not fit"


def _ratio(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if math.isfinite(value) else "does not fit"
