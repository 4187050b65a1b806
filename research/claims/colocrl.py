"""ColocRL (Mirhoseini et al. 2017): a sequence model that learns from measured steps beats experts and partitioners."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from research.suites.versus import UNLEARNED, gain, percent, steps_over
from research.tables.policies_table import costs_table, steps_table
from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.tables import table

LEARNED = "seq2seq"
BASELINES = ("single", "scotch", "min_cut", "expert")
"""What the paper compares it with."""

STEPS_S = {
    ("rnnlm_2", 2): (1.57, 1.57),
    ("rnnlm_2", 4): (1.57, 1.57),
    ("nmt_2", 2): (4.99, 4.04),
    ("nmt_2", 4): (4.73, 3.92),
    ("inception_v3", 2): (4.60, 4.60),
    ("inception_v3", 4): (4.60, 3.85),
}
"""Table 2: step seconds of the best of these and of the policy, by the number of K80s; from memory of the paper."""

PUBLISHED = {case: gain(learned, best) for case, (best, learned) in STEPS_S.items()}
"""Percent by which the policy's step is the shorter one. The paper has speed-ups: 23.5 % where this has 19.0 %."""


def tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((gains_table(rows), steps_table(rows), costs_table(rows), f"```\n{verdict(rows)}\n```"))


def gains_table(rows: Sequence[CaseResults]) -> str:
    """For each case how much faster the policy is than the best of the paper's baselines, here and there."""
    lines = []
    for row in rows:
        name, _ = row.best_of(BASELINES)
        published = PUBLISHED.get((row.facts.case.graph, row.facts.devices - 1))  # a host beside the GPUs
        lines.append((str(row.facts.case), name or "none fits", percent(gain_of(row)), percent(published)))
    return table((f"{LEARNED}'s step shorter than the best baseline's", "which is", "here", "in the paper"), lines)


def gain_of(row: CaseResults, learned: str = LEARNED, baselines: Sequence[str] = BASELINES) -> float | None:
    """`gain` of a policy over the best of those among some others that were run."""
    ran = any(not math.isnan(row.median_s(name)) for name in baselines)
    return gain(row.median_s(learned), row.best_of(baselines)[1]) if ran else None


def verdict(rows: Sequence[CaseResults]) -> str:
    """How often the policy is ahead, of the baselines and of searches that learn nothing."""
    gains = [gained for row in rows if (gained := gain_of(row)) is not None]
    if not gains:
        return f"no case yet in which {LEARNED} and its baselines were run"
    line = (
        f"{LEARNED} is faster than the best baseline in {sum(gained > 0 for gained in gains)} of {len(gains)} cases, "
        f"by {percent(statistics.median(gains))} in the median case, {percent(max(gains))} at most"
    )
    return "\n".join([line, *steps_over(rows, LEARNED, UNLEARNED)])
