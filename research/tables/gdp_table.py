"""GDP beside the human expert and the hierarchical policy, on models of any size and without groups, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from research.suites.time_to_target import (
    earliest_s_until,
    earliest_until,
    evaluations_until,
    median_until,
    processor_s_until,
)
from research.suites.versus import UNLEARNED, steps_over, versus
from research.tables.policies_table import BRACKETS, costs_table, step_cell
from tfplace.comparison.case_results import CaseResults, bound_over_single, placers_of
from tfplace.comparison.tables import table

GDP, HDP, EXPERT = "gdp_scratch", "hierarchical", "expert"
"""The three of them."""

_PUBLISHED = "published: 16 % faster than experts, 9.2 % faster than HDP, 15 times as soon (abstract; on real devices)"


def gdp_tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((zoo_table(rows), costs_table(rows), f"```\n{gdp_text(rows)}\n```"))


def zoo_table(rows: Sequence[CaseResults]) -> str:
    """For each case every placer's median step over that of the best single device, and the spread of the seeds."""
    names = placers_of(rows)
    lines = []
    for row in rows:
        cells = (step_cell(row, name) for name in names)
        lines.append((str(row.facts.case), f"{row.facts.ops:,}", bound_over_single(row), *cells))
    return f"{table(('step over single', 'ops', 'bound', *names), lines)}\n\n{BRACKETS}"


def gdp_text(rows: Sequence[CaseResults]) -> str:
    """GDP against the expert and HDP on the whole, and how much sooner it has what HDP has in the end."""
    rows = [row for row in rows if all(row.ran(name) for name in (GDP, HDP, EXPERT))]
    if not rows:
        return f"no case yet in which {GDP}, {HDP} and {EXPERT} were all run"
    lines = [f"{GDP}: {versus(rows, GDP, other).faster_than(other)}" for other in (EXPERT, HDP)]
    soon = [ratios for row in rows if (ratios := _soon(row)) is not None]
    reached = [ratios for ratios in soon if all(map(math.isfinite, ratios))]
    lines.append(f"it has what {HDP} has in the end in {len(reached)} of {len(soon)} cases")
    if reached:
        medians = [f"{statistics.median(column):.2f}" for column in zip(*reached, strict=True)]
        evaluations, seconds = (" to ".join(dict.fromkeys(pair)) for pair in (medians[:2], medians[2:]))
        lines[-1] += (
            f", in these after {evaluations} times the evaluations and {seconds} times the processor seconds (medians)"
        )
    return "\n".join([*lines, *steps_over(rows, GDP, ("single", *UNLEARNED)), _PUBLISHED])


def times_as_soon(row: CaseResults) -> tuple[float, float] | None:
    """HDP's evaluations over GDP's until GDP has HDP's last value: the least and the most that can be.

    Zero if it never has; None if HDP found nothing that fits, or one of the two was not run.
    """
    ratios = _soon(row) if row.ran(GDP) else None
    return None if ratios is None else (1 / ratios[1], 1 / ratios[0])


def _soon(row: CaseResults) -> tuple[float, ...] | None:
    """GDP's evaluations and seconds until it has HDP's last value, over HDP's; None if HDP found nothing that fits.

    Of evaluations the least and the most that the ratio can be for all that trails tell, then of seconds.
    """
    last_s = row.end_s(HDP)
    if not math.isfinite(last_s):
        return None
    ratios: list[float] = []
    for first, last in ((earliest_until, evaluations_until), (earliest_s_until, processor_s_until)):
        mine, theirs = ([median_until(row, name, last_s, until) for until in (first, last)] for name in (GDP, HDP))
        ratios += [mine[0] / theirs[1], mine[1] / theirs[0]]
    return tuple(ratios)
