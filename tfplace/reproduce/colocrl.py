"""ColocRL (Mirhoseini et al. 2017): a sequence model that learns from measured steps beats experts and partitioners."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tfplace.compare.policies_table import costs_table, steps_table
from tfplace.compare.standings import Standing
from tfplace.compare.tables import table

LEARNED = "seq2seq"
BASELINES = ("single", "scotch", "min_cut", "expert")
"""What the paper compares it with."""

PUBLISHED = {
    ("rnnlm_2", "2xP100"): 0.0,
    ("rnnlm_2", "4xP100"): 0.0,
    ("nmt_2", "2xP100"): 23.5,
    ("nmt_2", "4xP100"): 20.6,
    ("inception_v3", "2xP100"): 0.0,
    ("inception_v3", "4xP100"): 19.0,
}
"""Table 2: percent faster than the best of these; measured on K80s; from memory of the paper."""


def tables(rows: Sequence[Standing]) -> str:
    """All there is to say."""
    return "\n\n".join((gains_table(rows), steps_table(rows), costs_table(rows), f"```\n{verdict(rows)}\n```"))


def gains_table(rows: Sequence[Standing]) -> str:
    """For each case how much faster the policy is than the best of the paper's baselines, here and there."""
    lines = []
    for row in rows:
        name, _ = row.best_of(BASELINES)
        gain, published = gain_of(row), PUBLISHED.get((row.facts.case.graph, row.facts.case.topology))
        there = "-" if published is None else f"{published:.1f} %"
        lines.append((str(row.facts.case), name, "-" if gain is None else f"{gain:.1f} %", there))
    return table((f"{LEARNED} faster than the best baseline", "which is", "here", "in the paper"), lines)


def gain_of(row: Standing, learned: str = LEARNED, baselines: Sequence[str] = BASELINES) -> float | None:
    """Percent by which a policy's step is shorter than the best of some others'; None if one of them is missing."""
    mine, best = row.median_s(learned), row.best_of(baselines)[1]
    return 100 * (1 - mine / best) if math.isfinite(mine) and math.isfinite(best) else None


def verdict(rows: Sequence[Standing]) -> str:
    """How often the policy is ahead, of the baselines and of searches that learn nothing."""
    gains = [gain for row in rows if (gain := gain_of(row)) is not None]
    if not gains:
        return f"no case yet in which {LEARNED} and its baselines were run"
    lines = [
        f"{LEARNED} is faster than the best baseline in {sum(gain > 0 for gain in gains)} of {len(gains)} cases, by "
        f"{statistics.median(gains):.1f} % in the median case, {max(gains):.1f} % at most"
    ]
    for other in ("random_search", "annealing"):
        pairs = [(row.median_s(LEARNED), row.median_s(other)) for row in rows]
        pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
        if pairs:
            ratio = statistics.geometric_mean(mine / theirs for mine, theirs in pairs)
            ahead = sum(mine < theirs for mine, theirs in pairs)
            lines.append(
                f"with as many evaluations it takes {ratio:.2f} times the step of {other} (geometric mean), and is "
                f"faster in {ahead} of {len(pairs)}"
            )
    return "\n".join(lines)
