"""How the search went: of a placement the best so far, of a plan the seconds of each row."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tfplace.core.plan import Plan
from tfplace.formatting import format_seconds
from tfplace.report.page.elements import Cell, note, table
from tfplace.search.progress import Progress

_WIDTH, _HEIGHT, _LISTED = 400, 100, 30

_LAST = 1e300
"""Sorts what has no step time behind what has one."""


def search_of_placement(points: Sequence[Progress], bound_s: float, notes: Sequence[str]) -> str:
    """A curve of the best so far over the seconds of the search, its points as a table, and what the placer noted."""
    noted = "".join(f"<li>{escape(text)}</li>" for text in notes)
    noted = f"<ul>{noted}</ul>" if noted else ""
    if not points:
        return noted
    last = points[-1]
    rows = [
        (
            Cell(format_seconds(p.seconds)),
            Cell(f"{p.evaluations:,}"),
            Cell(_best(p)),
            Cell(escape(p.stage), kind="text"),
        )
        for p in points[-_LISTED:]
    ]
    said = (
        f"{last.evaluations:,} placements in {format_seconds(last.seconds)} of search: {_best(points[0])} at first, "
        f"{_best(last)} at the end."
    )
    bound = f" No placement can be faster than {format_seconds(bound_s)}." if bound_s > 0 else ""
    listed = table(
        f"The last {len(rows)} improvements, and the end",
        ("after", "placements", "best so far", "by"),
        rows,
    )
    as_table = f"<details><summary>As a table</summary>{listed}</details>"
    return f"<p>{escape(said + bound)}</p>{_curve(points, bound_s)}{as_table}{noted}"


def _best(point: Progress) -> str:
    fits = "" if point.fits else ", which did not fit"
    return f"{format_seconds(point.best_s or 0.0)}{fits}"


def _curve(points: Sequence[Progress], bound_s: float) -> str:
    end = max(points[-1].seconds, 1e-9)
    seconds = [point.best_s or 0.0 for point in points]
    top, low = max(seconds), min(*seconds, bound_s or min(seconds))
    if len(points) < 2 or top <= 0:
        return ""
    reach = 1.1 * max(top - low, 0.01 * top)

    def x(point: Progress) -> float:
        return _WIDTH * point.seconds / end

    def y(best_s: float) -> float:
        return _HEIGHT * (1 - (best_s - low) / reach) - 4

    path = f"M{x(points[0]):.1f} {y(seconds[0]):.1f}"
    path += "".join(f"H{x(p):.1f}V{y(s):.1f}" for p, s in zip(points[1:], seconds[1:], strict=True))
    bound = (
        f'<path d="M0 {y(bound_s):.1f}H{_WIDTH}" stroke="currentColor" stroke-dasharray="4 4" fill="none" '
        'vector-effect="non-scaling-stroke"><title>bound</title></path>'
        if bound_s > 0
        else ""
    )
    said = f"Best so far over the search, from {format_seconds(seconds[0])} to {format_seconds(seconds[-1])}"
    dashes = "dashed: the bound" if bound_s > 0 else ""
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" height="140" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(said)}"><path d="{path}" stroke="var(--accent)" stroke-width="2" fill="none" '
        f'vector-effect="non-scaling-stroke"/>{bound}</svg>'
        f'<figcaption class="axis"><span>0</span><span>{dashes}</span><span>{format_seconds(end)} of search</span>'
        "</figcaption></figure>"
    )


def search_of_plan(plan: Plan) -> str:
    """Seconds that it took to find each row, where they were noted, and what the search noted."""
    known = [row for row in plan.rows if row.found_s is not None]
    rows = [
        (
            Cell(escape(row.name)),
            Cell(format_seconds(row.found_s or 0.0), row.found_s),
            Cell(format_seconds(row.cost.step_s), row.cost.step_s) if row.cost.feasible else Cell("too large", _LAST),
        )
        for row in known
    ]
    notes = "".join(note(text) for text in plan.notes)
    if not rows:
        return notes
    caption = "Seconds of search and simulation for each plan, after the model was read"
    return notes + table(caption, ("plan", "found in", "step"), rows, key="search-table", scrolls="tall")
