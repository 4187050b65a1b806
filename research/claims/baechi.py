"""Baechi (Jeon et al. 2020): list scheduling is done far sooner than learning, and as good as experts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from research.suites.versus import versus
from tfplace.comparison.case_results import CaseResults, seeds_failed
from tfplace.comparison.tables import table
from tfplace.formatting import format_seconds

BAECHI = ("m_topo", "m_etf", "m_sct")
LEARNED = ("hierarchical", "gdp_scratch")

_STEPS = 10
"""Of each placement, as many as papers on learning run to measure it; here as long as the simulator says."""


def tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((times_table(rows), f"```\n{verdict(rows)}\n```"))


def times_table(rows: Sequence[CaseResults]) -> str:
    """For each case processor seconds of each placer, and with what measuring would take for those that learn."""
    with_steps = (f"{name}, with {_STEPS} simulated steps" for name in LEARNED)
    head = ["processor seconds", "ops", *BAECHI, *LEARNED, *with_steps]
    lines = []
    for row in rows:
        if not _whole(row):
            continue
        took = (f"{took_s(row, name):.3f}" for name in (*BAECHI, *LEARNED))
        lines.append(
            (
                str(row.facts.case),
                f"{row.facts.ops:,}",
                *took,
                *(format_seconds(measured_s(row, name)) for name in LEARNED),
            )
        )
    return table(head, lines)


def verdict(rows: Sequence[CaseResults]) -> str:
    """How many times sooner each is done, and how its step compares with the expert's."""
    rows = [row for row in rows if _whole(row)]
    lines = []
    for name in BAECHI if rows else ():
        ratios = [took_s(row, other) / took_s(row, name) for row in rows for other in LEARNED]
        measured = [measured_s(row, other) / took_s(row, name) for row in rows for other in LEARNED]
        against = versus(rows, name, "expert")
        above = [100 * (ratio - 1) for ratio in against.ratios]
        line = (
            f"{name}: {_times(ratios)} sooner than policies that learn in the simulator, "
            f"{_times(measured)} with {_STEPS} simulated steps of each placement"
        )
        if above:
            line += (
                f"; step against the expert's {statistics.median(above):+.1f} % (median), {max(above):+.1f} % at most"
            )
            if len(above) < against.cases:
                line += f" in the {len(above)} of {against.cases} cases in which both fit"
        lines.append(line)
    lines += seeds_failed(rows)
    lines.append("published: 654 to 206,000 times sooner, steps at most 6.2 % above expert (abstract; on real devices)")
    return "\n".join(lines)


def _whole(row: CaseResults) -> bool:
    """Whether all that the claim is about were run."""
    return all(row.ran(name) for name in (*BAECHI, *LEARNED))


def _times(ratios: Sequence[float]) -> str:
    return f"{min(ratios):,.0f} to {max(ratios):,.0f} times (median {statistics.median(ratios):,.0f})"


def took_s(row: CaseResults, name: str) -> float:
    """Processor seconds, median of the seeds; no less than a microsecond, which is what they are told in."""
    return max(statistics.median(run.cpu_s for run in row.ran(name)), 1e-6)


def measured_s(row: CaseResults, name: str) -> float:
    """The same, and the steps of each placement that was tried, run on the devices to be measured."""
    spent = [run.ran_s[-1] if run.ran_s else math.nan for run in row.ran(name)]
    return took_s(row, name) + _STEPS * statistics.median(spent)
