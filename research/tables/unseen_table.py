"""Policies on graphs they have never seen, beside what is found for each graph by itself, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from research.suites.versus import geometric_mean
from tfplace.comparison.case_results import CaseResults, placers_of, seeds_failed
from tfplace.comparison.cells import AT_ONCE, CONSTRUCTIVE
from tfplace.comparison.tables import table

OPTIMISED = "auto"
"""What every placement is compared with: the search of each graph by itself."""

TRAINED = ("placeto", "gdp")

ALONE = "placeto_49"
"""Placeto without moves."""

ITSELF = "placeto_scratch_20000"
"""Placeto that learns on each graph by itself: what the figure of its paper compares with."""

_NEAR = 1.1


def unseen_tables(rows: Sequence[CaseResults]) -> str:
    """All there is to say."""
    return "\n\n".join((groups_table(rows), overall_table(rows), f"```\n{goals_text(rows)}\n```"))


def over_optimised(rows: Sequence[CaseResults], placer: str) -> list[float]:
    """A placer's step over the optimised one, of each case in which that fits; infinite if the placer's does not."""
    rows = [row for row in rows if math.isfinite(row.median_s(OPTIMISED))]
    ratios = [row.median_s(placer) / row.median_s(OPTIMISED) for row in rows]
    return [ratio for ratio in ratios if not math.isnan(ratio)]


def by_seed(rows: Sequence[CaseResults], placer: str) -> list[float]:
    """Of each seed that every case has the geometric mean of its steps that fit over the optimised ones (medians)."""
    rows = [row for row in rows if row.ran(placer) and math.isfinite(row.median_s(OPTIMISED))]
    ratios = [{run.seed: (run.step_s or math.inf) / row.median_s(OPTIMISED) for run in row.ran(placer)} for row in rows]
    seeds = set.intersection(*map(set, ratios)) if ratios else set()
    fits = ([of[seed] for of in ratios if math.isfinite(of[seed])] for seed in sorted(seeds))
    return [geometric_mean(some) for some in fits if some]


def _bounds(rows: Sequence[CaseResults]) -> list[float]:
    """The bound over the optimised step, of each case in which that fits and there is a bound."""
    rows = [row for row in rows if math.isfinite(row.median_s(OPTIMISED)) and row.facts.bound_s > 0]
    return [row.facts.bound_s / row.median_s(OPTIMISED) for row in rows]


def groups_table(rows: Sequence[CaseResults]) -> str:
    """For each placer, and the bound, the geometric mean of the step over the optimised one, by family and topology."""
    groups = {group: [row for row in rows if _group(row) == group] for group in dict.fromkeys(map(_group, rows))}
    lines = [("bound", *(_shown(_bounds(some)) for some in groups.values()))]
    lines += [(name, *(_shown(over_optimised(some, name)) for some in groups.values())) for name in placers_of(rows)]
    return table((f"step over {OPTIMISED}", *groups), lines)


def overall_table(rows: Sequence[CaseResults]) -> str:
    """For each placer geometric means, median, worst case, and how often it is near the optimised one."""
    lines = []
    if bounds := _bounds(rows):
        lines.append(("bound", str(len(bounds)), _shown(bounds), "-", f"{statistics.median(bounds):.3f}", "-", "-"))
    for name in placers_of(rows):
        ratios = over_optimised(rows, name)
        if not ratios:
            continue
        fits = [ratio for ratio in ratios if math.isfinite(ratio)]
        worst = f"{max(fits):.2f}" if fits else "-"
        near = f"{sum(ratio <= _NEAR for ratio in ratios)} of {len(ratios)}"
        seeds, middle = by_seed(rows, name), f"{statistics.median(ratios):.3f}"
        spread = f"{min(seeds):.3f} to {max(seeds):.3f}" if len(seeds) > 1 else "-"
        lines.append((name, str(len(ratios)), _shown(ratios), spread, middle, worst, near))
    return table(("all cases", "cases", "geometric mean", "of each seed", "median", "worst", "within 10 %"), lines)


def goals_text(rows: Sequence[CaseResults]) -> str:
    """Each policy, and the better of those that were trained, against the best of all constructive placers."""
    single = [(name, (name,)) for name in (AT_ONCE[0], ALONE, *AT_ONCE[1:])]
    lines = []
    for name, policies in (*single, (f"the better of {' and '.join(TRAINED)}", TRAINED)):
        ran = [row for row in rows if all(map(row.ran, policies)) and math.isfinite(row.median_s(OPTIMISED))]
        if ran:
            pairs = [(row.best_of(policies)[1], row.best_constructive[1]) for row in ran]
            better = sum(mine < best for mine, best in pairs)
            ratio = geometric_mean([mine / best for mine, best in pairs if math.isfinite(mine) and math.isfinite(best)])
            middle = statistics.median(
                mine / row.median_s(OPTIMISED) for (mine, _), row in zip(pairs, ran, strict=True)
            )
            lines.append(
                f"{name}: {ratio:.3f} of the best of {len(CONSTRUCTIVE)} constructive placers (geometric mean), "
                f"faster in {better} of {len(pairs)} cases; median over {OPTIMISED} {middle:.3f}"
            )
    return "\n".join([*lines, *_over_itself(rows), *seeds_failed(rows)])


def _over_itself(rows: Sequence[CaseResults]) -> list[str]:
    """Trained policies at once over Placeto that has learned on each graph."""
    lines = []
    for name in (ALONE, *TRAINED):
        ran = [row for row in rows if row.ran(name) and math.isfinite(row.median_s(ITSELF))]
        ratios = [row.median_s(name) / row.median_s(ITSELF) for row in ran]
        if ratios:
            near = sum(ratio <= _NEAR for ratio in ratios)
            lines.append(
                f"{name}: {_shown(ratios)} of {ITSELF} (geometric mean; median "
                f"{statistics.median(ratios):.3f}), within 10 % of it or better in {near} of {len(ratios)} cases"
            )
    return lines


def curves(rows: Sequence[CaseResults]) -> dict[str, dict[str, list[float]]]:
    """Family -> placer -> its ratios, the same placers in each, for a plot of what part is within which factor."""
    shown = ("random", "placeto_untrained", "rnn_elsewhere", "heft", "m_sct", "etf", "gdp", ALONE, "placeto", ITSELF)
    names = [name for name in shown if any(name in row.runs for row in rows)]
    families: dict[str, list[CaseResults]] = {}
    for row in rows:
        families.setdefault(_family(row), []).append(row)
    return {family: {name: over_optimised(own, name) for name in names} for family, own in families.items()}


def _family(row: CaseResults) -> str:
    return row.facts.case.graph.rpartition("_")[0]


def _group(row: CaseResults) -> str:
    return f"{_family(row)} on {row.facts.case.topology}"


def _shown(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    unfit = sum(not math.isfinite(ratio) for ratio in ratios)
    fits = [ratio for ratio in ratios if math.isfinite(ratio)]
    text = f"{geometric_mean(fits):.3f}" if fits else "-"
    return text + (f" ({unfit} do not fit)" if unfit else "")
