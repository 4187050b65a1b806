"""Placeto beside the policy that its paper compares it with: how many placements each has to try, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from research.suites.time_to_target import earliest_until, evaluations_until, median_until
from research.suites.versus import UNLEARNED, factor, steps_over
from research.tables.policies_table import costs_table, steps_table
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.tables import table

PLACETO, RNN = "placeto_scratch", "seq2seq"
"""The two of them."""

NEAR = (0.01, 0.05)
"""How much above the best value that both reach counts as having it."""

PUBLISHED = {
    ("inception_v3", "2xP100"): ("1.6 k", "7.8 k", "4.8x"),
    ("inception_v3", "4xP100"): ("5.8 k", "35.8 k", "6.1x"),
    ("nmt_2", "2xP100"): ("20.4 k", "73 k", "3.5x"),
    ("nmt_2", "4xP100"): ("94 k", "51.7 k", "0.55x"),
    ("nasnet", "2xP100"): ("3.5 k", "16.3 k", "4.7x"),
    ("nasnet", "4xP100"): ("29 k", "37 k", "1.3x"),
}
"""Placeto (Addanki et al. 2019), table 1: measured on two and four GPUs of another kind; from memory of the paper."""


def samples_tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    lines = "\n".join(steps_over(rows, PLACETO, (RNN, *UNLEARNED)))
    return "\n\n".join((soon_table(rows), steps_table(rows), costs_table(rows), f"```\n{lines}\n```"))


def soon_table(rows: Sequence[CaseResults]) -> str:
    """For each case the evaluations until either policy has the best value that both reach, beside the paper's.

    That value is the larger of the two medians at the end. A policy that comes to it in fewer than half its runs never
    has it. Where trails leave out what it was first had with, a count is told as from when to when that can have been,
    and a ratio as the least and the most it can be.
    """
    head = ["evaluations until what both reach"]
    for near in NEAR:
        head += [f"Placeto, {100 * near:.0f} %", f"RNN, {100 * near:.0f} %", "RNN / Placeto"]
    head += ["paper: Placeto", "RNN", "RNN / Placeto"]
    lines = []
    for row in rows:
        medians_s = [row.median_s(name) for name in (PLACETO, RNN)]
        if any(map(math.isinf, medians_s)):
            continue
        cells = [str(row.facts.case)]
        for near in NEAR:
            cells += _counts(row, max(medians_s) * (1 + near)) if all(map(math.isfinite, medians_s)) else _missing(row)
        lines.append((*cells, *PUBLISHED.get((row.facts.case.graph, row.facts.case.topology), ("-", "-", "-"))))
    return table(head, lines)


def _missing(row: CaseResults) -> list[str]:
    """In place of counts, where one of the two was not run."""
    return ["-" if row.ran(name) else "not run" for name in (PLACETO, RNN)] + ["-"]


def times_fewer(row: CaseResults, near: float) -> tuple[float, float] | None:
    """RNN's evaluations over Placeto's until either is near what both reach: the least and the most that can be.

    None if one of them was not run or has nothing that fits, or both never are.

    Args:
      row: the case.
      near: how much above that value counts as having it.
    """
    medians_s = [row.median_s(name) for name in (PLACETO, RNN)]
    if not all(map(math.isfinite, medians_s)):
        return None
    soon, late = _until(row, max(medians_s) * (1 + near))
    ratios = (late[0] / soon[1], late[1] / soon[0])
    return None if any(map(math.isnan, ratios)) else ratios


def _until(row: CaseResults, step_s: float) -> list[list[float]]:
    """Evaluations of both until they have a step, at the earliest and at the latest."""
    return [
        [median_until(row, name, step_s, until) for until in (earliest_until, evaluations_until)]
        for name in (PLACETO, RNN)
    ]


def _counts(row: CaseResults, step_s: float) -> list[str]:
    """Evaluations of both until they have a step, and those of the second over those of the first."""
    soon, late = _until(row, step_s)
    if not all(map(math.isfinite, (*soon, *late))):
        return [_count(soon), _count(late), "-"]
    return [_count(soon), _count(late), _range(factor(late[0] / soon[1]), factor(late[1] / soon[0]))]


def _count(between: Sequence[float]) -> str:
    return _range(*(f"{evaluations:,.0f}" if math.isfinite(evaluations) else "never" for evaluations in between))


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
