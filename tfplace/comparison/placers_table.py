"""Standings as text: one line a case, and every cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean

from tfplace.comparison.case_results import (
    CaseResults,
    Goals,
    goals,
    over_bound,
    over_roomy,
    placers_of,
    seed_spread,
    seeds_failed,
    times,
)
from tfplace.comparison.cells import Case
from tfplace.comparison.tables import table
from tfplace.formatting import format_seconds

_SHOWN = ("random_search", "hill_climbing", "annealing", "local_search", "auto")
_HEAD = ("graph", "devices", "ops", "bound", "single", "best constructive", *_SHOWN, "auto / bound", "best of all")


def compare_tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say: the tables and the goals."""
    standings = table(OVER_ALL, over_all(rows))
    goal_lines = f"```\n{goals_text(rows)}\n```"
    return "\n\n".join((standings, summary_table(rows), full_table(rows), goals_table(rows), goal_lines))


OVER_ALL = ("placer", "cases", "fit", "over the best of all", "over the bound", "best")


def over_all(rows: Sequence[CaseResults]) -> list[tuple[str, ...]]:
    """The lines below `OVER_ALL`, one for each placer.

    Geometric means are over the cases that fit and whose best, or bound, is not zero.
    """
    lines: list[tuple[str, ...]] = []
    for name in placers_of(rows):
        ran = [row for row in rows if not math.isnan(row.median_s(name))]
        fits = [row for row in ran if math.isfinite(row.median_s(name))]
        best = sum(row.median_s(name) <= row.best_of(row.runs)[1] * (1 + 1e-9) for row in fits)
        means = (
            _mean([row.median_s(name) / row.best_of(row.runs)[1] for row in fits if row.best_of(row.runs)[1] > 0]),
            _mean(over_bound(fits, name)),
        )
        lines.append((name, str(len(ran)), str(len(fits)), *means, str(best)))
    return lines


def summary_table(rows: Sequence[CaseResults]) -> str:
    """A line for each case: bound, single device, best constructive placer, searches (medians over the seeds)."""
    return table(_HEAD, map(_summary, rows))


def _summary(row: CaseResults) -> tuple[str, ...]:
    case, bound = row.facts.case, row.facts.bound_s
    name, best = row.best_constructive
    winner, least = row.best_of(row.runs)
    ties = [other for other in placers_of([row]) if winner and row.median_s(other) <= least * (1 + 1e-9)]
    return (
        case.graph,
        _devices(case),
        f"{row.facts.ops:,}",
        format_seconds(bound),
        _seconds(row.median_s("single")),
        f"{_seconds(best)} ({name})" if name else "does not fit",
        *(_seconds(row.median_s(other)) for other in _SHOWN),
        _over(row.median_s("auto"), bound),
        "auto" if "auto" in ties else winner or "-",
    )


def full_table(rows: Sequence[CaseResults]) -> str:
    """Every cell: median over the bound, and the spread over the seeds where there are several."""
    names = placers_of(rows)
    lines = ((str(row.facts.case), *(_cell(row, name) for name in names)) for row in rows)
    return table(("step over bound", *names), lines)


def _mean(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.3f}" if ratios else "-"


def _cell(row: CaseResults, placer: str) -> str:
    bound_s, (low, high) = row.facts.bound_s, row.spread_s(placer)
    text = _over(row.median_s(placer), bound_s)
    if len(row.ran(placer)) > 1 and math.isfinite(high) and bound_s > 0:
        text = f"{text} ({times(low, bound_s)}..{times(high, bound_s)})"
    return row.with_failed(placer, text)


def goals_table(rows: Sequence[CaseResults]) -> str:
    """Where `auto` stands over all cases, and over those with the same devices; of ratios the geometric means."""
    groups: dict[str, list[CaseResults]] = {}
    for row in rows:
        groups.setdefault(_devices(row.facts.case), []).append(row)
    if len(groups) > 1:
        groups = {"all": [*rows], **groups}
    head = ("devices", "cases", "auto / best constructive", "auto / bound", "cases in which another is better")
    return table(head, (_goals(name, goals(group)) for name, group in groups.items()))


def _goals(name: str, found: Goals) -> tuple[str, ...]:
    return name, str(found.cases), _ratios(found.over_constructive), _ratios(found.over_bound), str(found.behind)


def goals_text(rows: Sequence[CaseResults]) -> str:
    """The goals in sentences, met or not."""
    found, memory = goals(rows), over_roomy(rows)
    lines = _goals_lines(found) if found.cases else ["auto was not run"]
    lines += [f"auto with tight memory over auto without: {_ratios(memory)}"] if memory else []
    for name in ("local_search", "auto"):
        if spread := seed_spread(rows, name):
            several = f"of {len(spread)} with several seeds"
            lines.append(f"{name}'s slowest seed over its fastest: {_ratios(spread)}, {several}")
    lines += [f"auto found nothing that fits: {case}" for case in found.unplaced]
    return "\n".join([*lines, *seeds_failed(rows)])


def _goals_lines(found: Goals) -> list[str]:
    lines = [
        f"auto over the best constructive placer: {_ratios(found.over_constructive)}, geometric mean (least..most) of "
        f"the {len(found.over_constructive)} cases of {found.cases} in which the bound leaves room",
        f"auto over the bound: {_ratios(found.over_bound)}",
        f"auto is beaten in {len(found.beaten)} of {found.cells} cells, in {found.behind} of {found.cases} cases"
        + (":" if found.beaten else ""),
    ]
    for case, other, factor in found.beaten:
        takes = "auto's does not fit" if case in found.unplaced else f"auto takes {factor:.3f} times as long"
        lines.append(f"  {case}: {other}, {takes}")
    behind = found.graphs_behind
    lines.append(
        f"auto is beaten on {len(behind)} of {len(found.nearest)} graphs by the geometric mean over all of their cases"
        + (":" if behind else "")
    )
    lines += [f"  {graph}: {other}, auto takes {factor:.3f} times as long" for graph, other, factor in behind]
    return lines


def _devices(case: Case) -> str:
    return case.topology + (", tight" if case.tight else "")


def _seconds(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    return format_seconds(seconds) if math.isfinite(seconds) else "does not fit"


def _ratios(values: Sequence[float]) -> str:
    """Their geometric mean, least and most."""
    return f"{geometric_mean(values):.2f} ({min(values):.2f}..{max(values):.2f})" if values else "-"


def _over(seconds: float, bound_s: float) -> str:
    return "does not fit" if math.isinf(seconds) else times(seconds, bound_s)
