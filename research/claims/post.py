"""Post (Gao et al. 2018): shorter steps than policy gradient at the same learning time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from research.suites.time_to_target import best_within_s
from research.suites.versus import gain, percent
from research.tables.policies_table import spread, steps_table
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.tables import table

POST = "post"
OTHERS = ("policy_gradient", "seq2seq", "post_ce", "post_ppo", "untrained", "random_search", "annealing")
PARTS = (0.25, 0.5, 1.0)
"""Of the learning time of the other one."""


def tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((time_table(rows), steps_table(rows), f"```\n{verdict(rows)}\n```"))


def time_table(rows: Sequence[CaseResults]) -> str:
    """For each case and other method how much shorter Post's step is when both have learned as long.

    Learning takes what running a step of each placement that is tried takes. The other one's time is its whole run's,
    or a part of that. In a cell are the median over the cases, its `spread` over those in which both fit, and the most.
    """
    head = ["Post's step is shorter by, at the other one's learning time", "cases"]
    head += [f"{100 * part:.0f} % of it" for part in PARTS]
    lines = []
    for other in OTHERS:
        gains = {part: [g for row in rows if (g := gain_at(row, other, part)) is not None] for part in PARTS}
        if gains[1.0]:
            cells = (_median(gains[part]) for part in PARTS)
            lines.append((f"than {other}'s", str(len(gains[1.0])), *cells))
    return table(head, lines)


def gain_at(row: CaseResults, other: str, part: float) -> float | None:
    """`gain` of Post over another at a part of the other's learning time; None if it is not known what that was."""
    mine, theirs = row.ran(POST), row.ran(other)
    if not all(run.ran_s for run in (*mine, *theirs)) or not mine or not theirs:
        return None
    until_s = part * statistics.median(run.ran_s[-1] for run in theirs)
    my_s, their_s = (statistics.median(best_within_s(run, until_s) for run in runs) for runs in (mine, theirs))
    return gain(my_s, their_s)


def verdict(rows: Sequence[CaseResults]) -> str:
    """The best case, as the paper gives it."""
    lines = []
    for other in ("policy_gradient", "seq2seq"):
        gains = [g for row in rows if (g := gain_at(row, other, 1.0)) is not None]
        if gains:
            ahead = sum(g > 0 for g in gains)
            most = percent(max(filter(math.isfinite, gains), default=None))
            lines.append(
                f"{POST} against {other} after the same learning time: up to {most} shorter steps, "
                f"shorter in {ahead} of {len(gains)} cases (the paper: up to 63.7 %)"
            )
    return "\n".join(lines) or "no results yet that tell what learning took"


def _median(gains: Sequence[float]) -> str:
    if not gains:
        return "-"
    middle, most = percent(_middle(gains)), max(gains)
    finite = [gained for gained in gains if math.isfinite(gained)]
    if not finite:
        return middle
    low, high = spread(finite)
    return f"{middle} ({low:.1f} to {high:.1f}; most {f'{most:.1f}' if math.isfinite(most) else percent(most)})"


def _middle(gains: Sequence[float]) -> float | None:
    """Their median; None if it is between one that only Post fits and one that Post does not."""
    low, high = statistics.median_low(gains), statistics.median_high(gains)
    return None if low == -high and math.isinf(low) else (low + high) / 2
