"""A comparison of placers as a table: for a terminal, for a notebook."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from html import escape

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfplace.comparison.case_results import seeds_text, times, troubles
from tfplace.comparison.comparison import Comparison
from tfplace.core.placement import COMPILED
from tfplace.core.stepcost import STEP_TIME
from tfplace.formatting import format_seconds
from tfplace.report.facts import misfit
from tfplace.report.html import STYLE, table
from tfplace.report.summary import plain_text
from tfplace.search.mirrored import MIRRORED


def comparison_tables(comparison: Comparison) -> RenderableType:
    """The table as `rich` draws it, and the verdict."""
    shown = Table(title=_caption(comparison), title_justify="left", box=box.SIMPLE_HEAD)
    for heading in _head(comparison):
        shown.add_column(heading, justify="left" if heading in ("placer", "seeds") else "right")
    bound_s = comparison.results.facts.bound_s
    for line in _lines(comparison):
        shown.add_row(*map(Text, line))
    shown.add_row("the bound", format_seconds(bound_s), style="dim")
    said = [Text(line) for line in _notes(comparison)]
    return Group(Text(comparison.title, style="bold"), shown, *said, Text(verdict(comparison), style="bold"))


def comparison_text(comparison: Comparison) -> str:
    """The same as plain text, without colors."""
    return plain_text(comparison_tables(comparison))


def comparison_html(comparison: Comparison) -> str:
    """The same as one HTML element; every text is escaped."""
    caption = f"{_caption(comparison)}; the bound is {format_seconds(comparison.results.facts.bound_s)}"
    rows = [[escape(cell) for cell in line] for line in _lines(comparison)]
    said = "<br>".join(map(escape, _notes(comparison)))
    return (
        f'<div class="tfplace"><style>{STYLE}</style><b>{escape(comparison.title)}</b>'
        f"{table(caption, _head(comparison), rows)}<p>{said}<br><b>{escape(verdict(comparison))}</b></p></div>"
    )


def verdict(comparison: Comparison) -> str:
    """Who found the best placement, and what that is worth."""
    row, best = comparison.results, comparison.best
    if best is None:
        return "no placer found a placement that fits"
    single = best.best_single  # compiled too, where that is known
    one_s = np.fmin(row.median_s("single"), math.nan if single is None else single[1].step_s)
    step_s = best.cost.step_s
    faster = "faster than" if row.facts.case.objective == STEP_TIME else "the throughput of"
    worth = f", {times(one_s, step_s)} times {faster} the best single device" if math.isfinite(one_s) else ""
    if one_s <= step_s * (1 + 1e-9):
        worth = ": nothing is better than the best single device"
    return f"best: {format_seconds(step_s)} by {best.placer}, seed {best.seed}{worth}"


def _caption(comparison: Comparison) -> str:
    return f"{comparison.words.others}; medians over the seeds"


def _head(comparison: Comparison) -> tuple[str, ...]:
    return "placer", comparison.words.column, "seeds", "over the bound", "over single", "evaluations", "took"


def _notes(comparison: Comparison) -> list[str]:
    why = f": {comparison.stopped}" if comparison.stopped else ""
    stopped = [] if comparison.whole else [f"stopped before everything was run{why}"]
    return _one_device(comparison) + _mirrored(comparison) + troubles(comparison.results) + stopped


def _one_device(comparison: Comparison) -> list[str]:
    """What the best single device takes op by op and compiled, where both are known."""
    best = comparison.best
    if best is None:
        return []
    alone = {name: cost.step_s for name, cost in best.baselines.items() if name.startswith("single ") and cost.feasible}
    ways = {True: [s for name, s in alone.items() if name.endswith(COMPILED)]}
    ways[False] = [s for name, s in alone.items() if not name.endswith(COMPILED)]
    if not all(ways.values()):
        return []
    return [f"one device: {format_seconds(min(ways[False]))} op by op, {format_seconds(min(ways[True]))} compiled"]


def _mirrored(comparison: Comparison) -> list[str]:
    """What a split step would take under MirroredStrategy, which is no placer."""
    best = comparison.best
    if best is None:
        return []
    return [
        f"{name} (MirroredStrategy): {misfit(cost, best.device_names) or format_seconds(cost.step_s)}"
        for name, cost in best.baselines.items()
        if name.startswith(MIRRORED)
    ]


def _lines(comparison: Comparison) -> Iterable[tuple[str, ...]]:
    row = comparison.results
    one_s = row.median_s("single")
    for name in comparison.ranked():
        runs, median_s = row.ran(name), row.median_s(name)
        low, high = row.spread_s(name)
        fits = math.isfinite(median_s)
        spread = f", {format_seconds(low)} to {format_seconds(high)}" if len(runs) > 1 and math.isfinite(high) else ""
        yield (
            name,
            format_seconds(median_s) if fits else "does not fit",
            seeds_text(row.runs[name]) + spread,
            times(median_s, row.facts.bound_s),
            times(median_s, one_s),
            f"{statistics.median(run.evaluations for run in runs):,.0f}",
            format_seconds(statistics.median(run.seconds for run in runs)),
        )
