"""GDP beside the human expert and the hierarchical policy, on models of any size and without groups, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tfplace.compare.policies_table import costs_table
from tfplace.compare.soon import median_until, processor_s_until
from tfplace.compare.standings import Standing, placers_of
from tfplace.compare.tables import table
from tfplace.compare.versus import UNLEARNED, steps_over, versus

GDP, HDP, EXPERT = "gdp_scratch", "hierarchical", "expert"
"""The three of them."""

_PUBLISHED = "published: 16 % faster than experts, 9.2 % faster than HDP, 15 times as soon (abstract; on real devices)"


def gdp_tables(rows: Sequence[Standing]) -> str:
    """All there is to say."""
    return "\n\n".join((zoo_table(rows), costs_table(rows), f"```\n{gdp_text(rows)}\n```"))


def zoo_table(rows: Sequence[Standing]) -> str:
    """For each case every placer's median step over that of the best single device."""
    names = placers_of(rows)
    lines = []
    for row in rows:
        case, one_s = row.facts.case, row.median_s("single")
        found = (row.median_s(name) / one_s for name in names)
        cells = (f"{ratio:.2f}" if math.isfinite(ratio) else "-" for ratio in found)
        lines.append((str(case), f"{row.facts.ops:,}", f"{row.facts.bound_s / one_s:.2f}", *cells))
    return table(("step over single", "ops", "bound", *names), lines)


def gdp_text(rows: Sequence[Standing]) -> str:
    """GDP against the expert and HDP on the whole, and how much sooner it has what HDP has in the end."""
    rows = [row for row in rows if {GDP, HDP, EXPERT} <= {*row.runs}]
    if not rows:
        return f"no case yet in which {GDP}, {HDP} and {EXPERT} were all run"
    lines = [f"{GDP}: {versus(rows, GDP, other).faster_than(other)}" for other in (EXPERT, HDP)]
    soon = [pair for row in rows if (pair := _soon(row)) is not None]
    reached = [pair for pair in soon if all(map(math.isfinite, pair))]
    lines.append(f"it has what {HDP} has in the end in {len(reached)} of {len(soon)} cases")
    if reached:
        evaluations, seconds = (statistics.median(column) for column in zip(*reached, strict=True))
        lines[-1] += (
            f", in these after {evaluations:.2f} times the evaluations and {seconds:.2f} times the processor seconds "
            "(medians)"
        )
    return "\n".join([*lines, *steps_over(rows, GDP, ("single", *UNLEARNED)), _PUBLISHED])


def _soon(row: Standing) -> tuple[float, float] | None:
    """GDP's evaluations and seconds until it has HDP's last value, over HDP's; None if HDP found nothing that fits."""
    last_s = row.end_s(HDP)
    if not math.isfinite(last_s):
        return None
    return (
        median_until(row, GDP, last_s) / median_until(row, HDP, last_s),
        median_until(row, GDP, last_s, processor_s_until) / median_until(row, HDP, last_s, processor_s_until),
    )
