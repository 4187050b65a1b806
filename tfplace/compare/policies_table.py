"""Policies side by side at equal evaluations and equal groups, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from tfplace.compare.soon import median_until
from tfplace.compare.standings import Standing, placers_of
from tfplace.compare.tables import table
from tfplace.units import format_seconds

_RESAMPLES, _LEVEL = 2000, 0.95
_PAPER = "up to 63.7 % (the paper's claim, against policy gradient and others on real devices)"


def policies_tables(rows: Sequence[Standing]) -> str:
    """All there is to say."""
    return "\n\n".join((steps_table(rows), costs_table(rows), f"```\n{post_text(rows)}\n```"))


def steps_table(rows: Sequence[Standing]) -> str:
    """For each placer and case the median step over that of the best single device, and its bootstrap interval."""
    head = ("step over single", *(str(row.facts.case) for row in rows))
    bounds = ("bound", *(f"{row.facts.bound_s / _single_s(row):.2f}" for row in rows))
    lines = [(name, *(_cell(row, name) for row in rows)) for name in placers_of(rows)]
    return table(head, [bounds, *lines])


def costs_table(rows: Sequence[Standing]) -> str:
    """For each placer the median evaluations and processor seconds of a run, and how many ended in what fits.

    Also, with tight memory, what part of the evaluations was of placements that do not fit.
    """
    head = ("of a run", "evaluations", "processor", "runs that fit", "tight memory: evaluations that do not fit")
    lines = []
    for name in placers_of(rows):
        runs = [run for row in rows for run in row.runs.get(name, ()) if not run.trouble]
        if runs:
            evaluations = statistics.median(run.evaluations for run in runs)
            seconds = format_seconds(statistics.median(run.cpu_s for run in runs))
            fits = sum(run.step_s is not None for run in runs)
            tight = [run.failed / run.evaluations for run in runs if run.case.tight]
            unfit = f"{100 * statistics.median(tight):.0f} %" if tight else "-"
            lines.append((name, f"{evaluations:,.0f}", seconds, f"{fits} of {len(runs)}", unfit))
    return table(head, lines)


def post_text(rows: Sequence[Standing]) -> str:
    """Post against plain policy gradient: when it has that one's last value, and how far it gets below it."""
    lines, soon, as_good = [], 0, 0
    for row in rows:
        plain_s, post_s = row.median_s("policy_gradient"), row.median_s("post")
        if not math.isfinite(plain_s):
            verdict = "policy gradient found nothing that fits"
            lines.append(f"{row.facts.case}: {verdict}" + (", Post did" if math.isfinite(post_s) else ""))
            as_good += 1
            continue
        reached = median_until(row, "post", plain_s)
        total = max(run.evaluations for run in row.runs["policy_gradient"])
        soon += reached <= total / 2
        as_good += post_s <= plain_s
        when = f"after {reached:,.0f} of {total:,} evaluations" if math.isfinite(reached) else "not in most runs"
        gap = f"{100 * (1 - post_s / plain_s):.1f} %" if math.isfinite(post_s) else "none, as it does not fit"
        lines.append(f"{row.facts.case}: Post has policy gradient's value {when}, and ends lower by {gap}")
    score = f"with half the evaluations in {soon}, and in the end no worse in {as_good} of {len(lines)} cases"
    return "\n".join([*lines, score, f"published: {_PAPER}"])


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % percentile interval of the median (B. Efron 1979), the same each time it is asked for."""
    drawn = np.random.default_rng(0).choice(np.array(values), (_RESAMPLES, len(values)))
    medians = np.sort(np.median(drawn, axis=1))
    tail = round((1 - _LEVEL) / 2 * _RESAMPLES)
    return float(medians[tail]), float(medians[-1 - tail])


def _single_s(row: Standing) -> float:
    """The best single device, which is the host if no accelerator holds everything."""
    return row.median_s("single")


def _cell(row: Standing, placer: str) -> str:
    median_s, one_s = row.median_s(placer), _single_s(row)
    if math.isnan(median_s):
        return "-"
    if not math.isfinite(median_s):
        return "does not fit"
    found = [math.inf if run.step_s is None else run.step_s for run in row.runs[placer]]
    if len(found) < 2:
        return f"{median_s / one_s:.2f}"
    low, high = (f"{value / one_s:.2f}" if math.isfinite(value) else "-" for value in bootstrap(found))
    return f"{median_s / one_s:.2f} ({low}..{high})"
