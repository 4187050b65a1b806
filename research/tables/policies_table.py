"""Policies side by side at equal evaluations and equal groups, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from research.suites.time_to_target import earliest_until, evaluations_until, median_until
from tfplace.comparison.case_results import CaseResults, bound_over_single, over_single, placers_of, times
from tfplace.comparison.tables import table
from tfplace.formatting import format_seconds

_RESAMPLES, _LEVEL = 2000, 0.95
_ENOUGH = 5
"""Values of which a bootstrap interval holds the median about as often as it says: of 5 it is 94 %, of 3 it is 74 %."""

BRACKETS = "In brackets the 95 % bootstrap interval of the median, of fewer than 5 seeds the least and the most."
"""What `step_cell` shows."""
_PAPER = "up to 63.7 % (the paper's claim, against policy gradient and others on real devices)"


def policies_tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((steps_table(rows), costs_table(rows), f"```\n{post_text(rows)}\n```"))


def steps_table(rows: Sequence[CaseResults]) -> str:
    """For each placer and case the median step over that of the best single device, and `spread` of the seeds."""
    head = ("step over single", *(str(row.facts.case) for row in rows))
    bounds = ("bound", *map(bound_over_single, rows))
    lines = [(name, *(step_cell(row, name) for row in rows)) for name in placers_of(rows)]
    return f"{table(head, [bounds, *lines])}\n\n{BRACKETS}"


def costs_table(rows: Sequence[CaseResults]) -> str:
    """For each placer the median evaluations and processor seconds of a run, and how many ended in what fits.

    Also, with tight memory, what part of the evaluations was of placements that do not fit.
    """
    head = ("of a run", "evaluations", "processor", "runs that fit", "tight memory: evaluations that do not fit")
    lines = []
    for name in placers_of(rows):
        runs = [run for row in rows for run in row.ran(name)]
        if runs:
            evaluations = statistics.median(run.evaluations for run in runs)
            seconds = format_seconds(statistics.median(run.cpu_s for run in runs))
            fits = sum(run.step_s is not None for run in runs)
            tight = [run.failed / run.evaluations for run in runs if run.case.tight and run.evaluations]
            unfit = f"{100 * statistics.median(tight):.0f} %" if tight else "-"
            lines.append((name, f"{evaluations:,.0f}", seconds, f"{fits} of {len(runs)}", unfit))
    return table(head, lines)


def post_text(rows: Sequence[CaseResults]) -> str:
    """Post against plain policy gradient: when it has that one's last value, and how far it gets below it."""
    lines, soon, maybe, as_good = [], 0, 0, 0
    rows = [row for row in rows if row.ran("policy_gradient") and row.ran("post")]
    if not rows:
        return "no case yet in which policy_gradient and post were both run"
    for row in rows:
        plain_s, post_s = row.median_s("policy_gradient"), row.median_s("post")
        if not math.isfinite(plain_s):
            verdict = "policy gradient found nothing that fits"
            lines.append(f"{row.facts.case}: {verdict}" + (", Post did" if math.isfinite(post_s) else ""))
            as_good += 1
            continue
        earliest, reached = (median_until(row, "post", plain_s, until) for until in (earliest_until, evaluations_until))
        total = max(run.evaluations for run in row.ran("policy_gradient"))
        soon += reached <= total / 2
        maybe += earliest <= total / 2
        as_good += post_s <= plain_s
        latest = " at the latest" if earliest < reached else ""
        when = (
            f"after {reached:,.0f} of {total:,} evaluations{latest}" if math.isfinite(reached) else "not in most runs"
        )
        gap = f"{100 * (1 - post_s / plain_s):.1f} %" if math.isfinite(post_s) else "none, as it does not fit"
        lines.append(f"{row.facts.case}: Post has policy gradient's value {when}, and ends lower by {gap}")
    half = f"{soon}{' at least' if soon < maybe else ''}"
    score = f"with half the evaluations in {half}, and in the end no worse in {as_good} of {len(lines)} cases"
    return "\n".join([*lines, score, f"published: {_PAPER}"])


def spread(values: Sequence[float]) -> tuple[float, float]:
    """`bootstrap`; of fewer than `_ENOUGH` values, of which that says too little, the least and the most."""
    return bootstrap(values) if len(values) >= _ENOUGH else (min(values), max(values))


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % percentile interval of the median (B. Efron 1979), the same each time it is asked for."""
    drawn = np.random.default_rng(0).choice(np.array(values), (_RESAMPLES, len(values)))
    medians = np.sort(np.median(drawn, axis=1))
    tail = round((1 - _LEVEL) / 2 * _RESAMPLES)
    return float(medians[tail]), float(medians[-1 - tail])


def step_cell(row: CaseResults, placer: str) -> str:
    """The median step over that of the best single device, `spread` of the seeds, and whether some failed."""
    text, found, one_s = over_single(row, placer), row.found_s(placer), row.median_s("single")
    if len(found) > 1 and math.isfinite(row.median_s(placer)) and math.isfinite(one_s):
        low, high = (times(value, one_s) for value in spread(found))
        text = f"{text} ({low}..{high})"
    return row.with_failed(placer, text)
