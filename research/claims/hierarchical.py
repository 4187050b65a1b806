"""HDP (Mirhoseini et al. 2018): a policy that learns its groups places graphs of tens of thousands of ops."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from research.claims.colocrl import BASELINES, gain_of
from research.suites.versus import UNLEARNED, percent, steps_over, versus
from research.tables.gdp_table import zoo_table
from tfplace.comparison.case_results import CaseResults, seeds_failed
from tfplace.comparison.tables import table
from tfplace.formatting import format_seconds

LEARNED = "hierarchical"

PUBLISHED = {
    "inception_v3": (16.3, 2),
    "resnet152": (0.0, 2),
    "rnnlm_2": (0.0, 2),
    "nmt_2": (60.6, 2),
    "nmt_4": (53.7, 4),
}
"""Table 1: percent by which steps are shorter than those of the best of one GPU, expert, Scotch and MinCut, and on how
many K40s; from memory.

Its largest model, NMT of 8 layers, was 4.9 % slower than the expert placement.
"""


def tables(rows: Sequence[CaseResults]) -> str:
    """What there is to say beside what `gdp_tables` says of the same results."""
    return "\n\n".join((gains_table(rows), f"```\n{verdict(rows)}\n```"))


def all_tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return f"{zoo_table(rows)}\n\n{tables(rows)}"


def gains_table(rows: Sequence[CaseResults]) -> str:
    """For each model, largest first: the policy against the paper's baselines and against blind search."""
    lines = []
    for row in sorted(rows, key=lambda r: -r.facts.ops):
        gained, blind = gain_of(row, LEARNED), gain_of(row, LEARNED, ("random_search",))
        if gained is None:
            continue
        name, _ = row.best_of(BASELINES)
        theirs, gpus = PUBLISHED.get(row.facts.case.graph, (None, 0))
        lines.append(
            (
                str(row.facts.case),
                f"{row.facts.ops:,}",
                name or "none fits",
                percent(gained),
                percent(blind),
                format_seconds(statistics.median(run.cpu_s for run in row.ran(LEARNED))),
                f"{percent(theirs)} ({gpus} GPUs)" if gpus else percent(theirs),
            )
        )
    head = (f"{LEARNED}, without groups", "ops", "best baseline", "faster than it", "than random_search")
    return table((*head, "processor", "in the paper"), lines)


def verdict(rows: Sequence[CaseResults]) -> str:
    """How often it is ahead, on all graphs and on those of tens of thousands of ops; then against blind search."""
    lines = []
    for what, least in (("all graphs", 0), ("graphs of over 20,000 ops", 20_000)):
        gains = [g for row in rows if row.facts.ops > least and (g := gain_of(row, LEARNED)) is not None]
        if gains:
            ahead = sum(gained > 0 for gained in gains)
            lines.append(
                f"{what}: faster than the best baseline in {ahead} of {len(gains)}, {percent(max(gains))} at most"
            )
    if not lines:
        return f"no case yet in which {LEARNED} and its baselines were run"
    ratios = versus(rows, LEARNED, "single").ratios
    near = sum(abs(ratio - 1) <= 0.01 for ratio in ratios)
    lines.append(f"within 1 % of the step of one device in {near} of {len(ratios)}")
    return "\n".join([*lines, *steps_over(rows, LEARNED, UNLEARNED), *seeds_failed(rows)])
