"""Everything that was run, as one page that needs nothing but itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from html import escape

from tfplace.comparison.case_results import CaseResults, placers_of, seeds_text, times, troubles
from tfplace.comparison.cells import Case
from tfplace.comparison.placers_table import OVER_ALL, over_all
from tfplace.core.placement import Placement
from tfplace.formatting import format_seconds
from tfplace.report.charts import FACTOR_SHOWN, cumulative_chart, curves_chart, steps_chart
from tfplace.report.facts import Wording, wording
from tfplace.report.html import Html, figures, page, placement_html, table
from tfplace.report.pictures import Picture, placement_pictures

_SOON = 50
"""A run of fewer evaluations is no search, and has no curve."""

_CURVES = 8
"""The most in one picture that can still be told from each other; of more, those ahead are in the first."""

_OPEN = 2
"""So many cases are shown at once; of more, each is opened by a click."""


def comparison_page(
    rows: Sequence[CaseResults], title: str, best: Mapping[Case, Placement | str] | None = None, *, budget: str = ""
) -> str:
    """Tables and charts: over all cases where there are several, then case by case.

    Args:
      rows: what was found.
      title: of the page.
      best: of cases, the best placement, which is shown too, or why there is none.
      budget: of each run, unless the title says it.

    Raises:
      MissingExtraError: matplotlib is missing.
    """
    had = f" Each run had a budget of {escape(budget)}." if budget else ""
    said = f"<p>All {_numbers(rows)} are simulated. A cell is the median over the seeds.{had}</p>"
    parts = [f"<h1>{escape(title)}</h1>", said]
    if len(rows) > 1:
        parts += ["<h2>All cases</h2>", _overall(rows), figures(_over_all(rows))]
    for row in rows:
        name, inside = escape(str(row.facts.case)), _case(row) + _best((best or {}).get(row.facts.case))
        opened = " open" if len(rows) <= _OPEN else ""
        parts.append(f"<details{opened}><summary><b>{name}</b>, {_said(row)}</summary>{inside}</details>")
    return page(title, f'<div class="tfplace">{"".join(parts)}</div>')


def _words(row: CaseResults) -> Wording:
    return wording(row.facts.case.objective)


def _numbers(rows: Sequence[CaseResults]) -> str:
    """What the medians of some cases are, such as "step times and largest loads"."""
    return " and ".join(dict.fromkeys(f"{_words(row).number}s" for row in rows)) or "numbers"


def _said(row: CaseResults) -> str:
    name, least = row.best_of(row.runs)
    found = f"best {format_seconds(least)} by {name}" if name else "nothing fits"
    return escape(f"{row.facts.ops:,} ops, bound {format_seconds(row.facts.bound_s)}, {found}")


def _overall(rows: Sequence[CaseResults]) -> str:
    lines = [[escape(cell) for cell in line] for line in over_all(rows)]
    return table(f"{_numbers(rows).capitalize()}, geometric means over the cases that fit", OVER_ALL, lines)


def _over_all(rows: Sequence[CaseResults]) -> list[Picture]:
    over = {
        name: [
            row.median_s(name) / row.best_of(row.runs)[1]
            for row in rows
            if not math.isnan(row.median_s(name)) and 0 < row.best_of(row.runs)[1] < math.inf
        ]
        for name in placers_of(rows)
    }
    what = " or ".join(dict.fromkeys(_words(row).column for row in rows))
    over = {name: each for name, each in over.items() if each}
    ahead = sorted(over, key=lambda name: statistics.mean(math.log(min(ratio, FACTOR_SHOWN)) for ratio in over[name]))
    caption = "In which part of the cases each placer is within which factor of the best of all"
    pictures = []
    for i in range(parts := max(1, math.ceil(len(ahead) / _CURVES))):
        names = ahead[i * len(ahead) // parts : (i + 1) * len(ahead) // parts]
        which = f" (picture {i + 1} of {parts}; the others' curves are pale)" if parts > 1 else ""
        pictures.append(Picture(caption + which, cumulative_chart(over, f"{what} over the best of all", names)))
    return pictures


def _case(row: CaseResults) -> str:
    return _table(row) + charts(row)


def _best(placement: Placement | str | None) -> str:
    if placement is None:
        return ""
    if isinstance(placement, str):
        return f"<h3>The best placement</h3><p>No charts: {escape(placement)}.</p>"
    facts, pictures = placement_html(placement, style=False), figures(placement_pictures(placement))
    return f"<h3>The best placement</h3>{facts}{pictures}"


def _names(row: CaseResults) -> list[str]:
    """Placers of which a run could run."""
    return [name for name in placers_of([row]) if row.ran(name)]


def charts(row: CaseResults) -> Html:
    """What every placer found, and how the searches among them went on.

    Raises:
      MissingExtraError: matplotlib is missing.
    """
    names = _names(row)
    searches = [name for name in names if max(run.evaluations for run in row.ran(name)) >= _SOON]
    number = _words(row).number
    bars = steps_chart({n: row.found_s(n) for n in names}, row.facts.bound_s, number)
    pictures = [Picture(f"{number.capitalize()} of each placer", bars)]
    if searches:
        trails = {n: [[(e, s) for e, _, s, _ in run.trail] for run in row.ran(n)] for n in searches}
        most = max(run.evaluations for n in searches for run in row.ran(n))
        caption = "Best so far: median over the seeds, and from the least to the most of them"
        pictures.append(Picture(caption, curves_chart(trails, most, number)))
    return figures(pictures)


def _table(row: CaseResults) -> str:
    one_s = row.median_s("single")
    lines = []
    for name in _names(row):
        step_s, runs = row.median_s(name), row.ran(name)
        lines.append(
            (
                escape(name),
                format_seconds(step_s) if math.isfinite(step_s) else "does not fit",
                times(step_s, row.facts.bound_s),
                times(step_s, one_s),
                seeds_text(row.runs[name]),
                f"{statistics.median(run.evaluations for run in runs):,.0f}",
                _processor(statistics.median(run.cpu_s for run in runs)),
            )
        )
    head = ("placer", _words(row).column, "over the bound", "over single", "runs", "evaluations", "processor")
    said = "".join(f"<p>{escape(note)}</p>" for note in troubles(row))
    return table(f"{_words(row).others}; medians over the seeds", head, lines) + said


def _processor(seconds: float) -> str:
    """Older results have hundredths, so what took less is 0 there.

    Less than 0 is left where kernels took longer to compile than the processor worked: then nobody can tell.
    """
    return "-" if seconds < 0 else format_seconds(seconds) if seconds else "&lt; 10 ms"
