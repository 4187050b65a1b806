"""What parts of a policy are worth: it, and it without each of them, trained alike, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from research.suites.versus import geometric_mean
from tfplace.comparison.case_results import CaseResults, placers_of
from tfplace.comparison.tables import table

WHOLE = "gdp_whole"
PARTED = ("gdp_no_attention", "gdp_no_superposition")

_ONE = "single"


def ablation_tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((families_table(rows), f"```\n{ablation_text(rows)}\n```"))


def families_table(rows: Sequence[CaseResults]) -> str:
    """For each placer the geometric mean of its step over the best single device's, by family and over all."""
    families = {row.facts.case.graph.rpartition("_")[0]: None for row in rows}
    groups = [*([row for row in rows if row.facts.case.graph.startswith(f"{f}_")] for f in families), rows]
    lines = [(name, *(_shown(_ratios(some, name, _ONE)) for some in groups)) for name in placers_of(rows)]
    return table((f"step over {_ONE}", *families, "all"), lines)


def ablation_text(rows: Sequence[CaseResults]) -> str:
    """A line for each part: what doing without it costs."""
    lines = []
    for name in PARTED:
        ratios = _ratios(rows, name, WHOLE)
        if ratios:
            slower = sum(ratio > 1 for ratio in ratios)
            lines.append(
                f"{name} takes {geometric_mean(ratios):.3f} times the step of {WHOLE} (geometric mean; "
                f"{min(ratios):.2f} to {max(ratios):.2f}), and is slower in {slower} of {len(ratios)} cases"
            )
    return "\n".join(lines or [f"no case yet in which {WHOLE} and what lacks a part of it found what fits"])


def _ratios(rows: Sequence[CaseResults], placer: str, other: str) -> list[float]:
    """A placer's median step over another's, of each case in which both found what fits."""
    pairs = [(row.median_s(placer), row.median_s(other)) for row in rows]
    return [mine / theirs for mine, theirs in pairs if math.isfinite(mine) and math.isfinite(theirs) and theirs > 0]


def _shown(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.3f}" if ratios else "-"
