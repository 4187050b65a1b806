"""A policy that was trained on other families, beside one that learns each graph from nothing, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from research.suites.time_to_target import earliest_until, median_until
from tfplace.comparison.case_results import CaseResults, over_single, placers_of
from tfplace.comparison.cells import CONSTRUCTIVE
from tfplace.comparison.tables import table

SCRATCH, ELSEWHERE, TUNED = "placeto_scratch", "placeto_elsewhere", "placeto_tuned"
"""Begins anew; places at once; places at once, then learns for some updates."""

_MANY = 10
_PUBLISHED = "published: fine-tuning in under 50 steps (GDP, Zhou et al. 2019; on real devices)"


def transfer_tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((steps_table(rows), f"```\n{transfer_text(rows)}\n```"))


def steps_table(rows: Sequence[CaseResults]) -> str:
    """For each graph every placer's step over the best single device's, and how soon what the tuned one has is had."""
    rows, names = _whole(rows), placers_of(rows)
    lines = []
    for row in rows:
        cells = (row.with_failed(name, over_single(row, name)) for name in names)
        lines.append((str(row.facts.case), *cells, *_counts(row)))
    head = ("step over single", *names, "evaluations at the latest: tuned", "anew", "times as many, at least")
    return table(head, lines)


def transfer_text(rows: Sequence[CaseResults]) -> str:
    """In how many cases learning anew takes how many times the evaluations."""
    rows = _whole(rows)
    if not rows:
        return f"no case yet in which {SCRATCH}, {ELSEWHERE} and {TUNED} were run and the last two found what fits"
    times = [_times(row) for row in rows]
    many = sum(ratio >= _MANY for ratio in times)
    never = sum(math.isinf(ratio) for ratio in times)
    gained = statistics.geometric_mean([row.median_s(TUNED) / row.median_s(ELSEWHERE) for row in rows])
    return "\n".join(
        [
            f"to have what {TUNED} has, {SCRATCH} takes at least {_MANY} times the evaluations in {many} of "
            f"{len(rows)} cases, in {never} of which it never has it",
            f"{TUNED} is {100 * (1 - gained):.1f} % faster than {ELSEWHERE} (geometric mean)",
            _beside_the_simple(rows),
            _PUBLISHED,
        ]
    )


def _beside_the_simple(rows: Sequence[CaseResults]) -> str:
    """To be soon there is no merit where one device is all that was found."""
    simple = [name for name in CONSTRUCTIVE if all(row.ran(name) for row in rows)]
    if not simple:
        return f"no constructive placer was run everywhere that {TUNED} was"
    ahead = sum(row.median_s(TUNED) < min(row.median_s(name) for name in simple) for row in rows)
    one = sum(row.median_s(TUNED) >= row.median_s("single") for row in rows) if "single" in simple else 0
    beside = f"faster than {', '.join(simple)} in {ahead} of {len(rows)} cases"
    return f"{TUNED} is {beside}, and no faster than one device in {one}"


def _whole(rows: Sequence[CaseResults]) -> list[CaseResults]:
    """Those of which there is something to be said."""
    ran = [row for row in rows if all(row.ran(name) for name in (SCRATCH, ELSEWHERE, TUNED))]
    return [row for row in ran if all(math.isfinite(row.median_s(name)) for name in (ELSEWHERE, TUNED))]


def _tuned(row: CaseResults) -> float:
    return median_until(row, TUNED, row.end_s(TUNED))


def _times(row: CaseResults) -> float:
    """Evaluations anew over evaluations with what was learned elsewhere, until the step that the latter comes to.

    The least that it can be for all that trails tell.
    """
    return median_until(row, SCRATCH, row.end_s(TUNED), earliest_until) / _tuned(row)


def _counts(row: CaseResults) -> tuple[str, str, str]:
    anew = median_until(row, SCRATCH, row.end_s(TUNED))
    if math.isinf(anew):
        return f"{_tuned(row):,.0f}", "never", "-"
    return f"{_tuned(row):,.0f}", f"{anew:,.0f}", f"{_times(row):.1f}"
