"""GDP (Zhou et al. 2019): a policy trained on other graphs places large ones at once, or with little more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from research.suites.time_to_target import median_until
from research.suites.versus import versus
from research.tables.policies_table import BRACKETS, step_cell
from tfplace.comparison.case_results import CaseResults, bound_over_single, placers_of
from tfplace.comparison.tables import table
from tfplace.formatting import format_seconds

ONCE, TUNED, SCRATCH = "gdp", "gdp_tuned", "gdp_scratch"


def tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((steps_table(rows), f"```\n{verdict(rows)}\n```"))


def steps_table(rows: Sequence[CaseResults]) -> str:
    """For each placer and graph the step over the best single device's, the evaluations and the processor time."""
    head = ["step over single; evaluations; processor", *(f"{r.facts.case} ({r.facts.ops:,} ops)" for r in rows)]
    lines = [("bound", *map(bound_over_single, rows))]
    lines += [(name, *(_cell(row, name) for row in rows)) for name in placers_of(rows)]
    return f"{table(head, lines)}\n\n{BRACKETS}"


def verdict(rows: Sequence[CaseResults]) -> str:
    """The policy at once and after a little training against experts, and against one that begins from nothing."""
    lines = []
    for name in (ONCE, TUNED):
        against = versus(rows, name, "expert")
        if against.cases:
            lines.append(f"{name}: {against.faster_than('expert')}")
    both = [row for row in rows if row.ran(TUNED) and math.isfinite(row.median_s(SCRATCH))]
    soon = [median_until(row, TUNED, row.median_s(SCRATCH)) for row in both]
    reached = [evaluations for evaluations in soon if math.isfinite(evaluations)]
    if both:
        lines.append(f"{TUNED} has what {SCRATCH} has in the end in {len(reached)} of {len(both)} cases")
        if reached:
            lines[-1] += f", after {statistics.median(reached):,.0f} evaluations at the latest (median)"
    return "\n".join(lines) or f"no case yet in which {ONCE} was run"


def _cell(row: CaseResults, name: str) -> str:
    ratio, runs = step_cell(row, name), row.ran(name)
    if not runs:
        return ratio
    evaluations = statistics.median(run.evaluations for run in runs)
    took = format_seconds(statistics.median(run.cpu_s for run in runs))
    return f"{ratio}; {evaluations:,.0f}; {took}"
