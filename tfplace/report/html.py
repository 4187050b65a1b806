"""A placement as a self-contained piece of HTML for notebooks, and the page that a comparison is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tfplace.core.placement import Placement
from tfplace.formatting import format_seconds
from tfplace.report.facts import (
    DEVICE_HEADINGS,
    DeviceFacts,
    baseline_order,
    device_facts,
    misfit,
    said,
    title,
    verdict,
    versus,
    wording,
)
from tfplace.report.layer_facts import LAYER_HEADINGS, LAYERS, layer_facts
from tfplace.report.pictures import Picture, placement_pictures

STYLE = """
.tfplace { font-family: sans-serif; font-size: 14px; overflow-wrap: break-word; }
.tfplace .wide { overflow-x: auto; margin: 0.8em 0; }
.tfplace table { border-collapse: collapse; }
.tfplace caption { text-align: left; color: #666; }
.tfplace td, .tfplace th { padding: 0.2em 0.8em; text-align: right; }
.tfplace td { white-space: nowrap; }
.tfplace td .long { white-space: normal; width: 24em; }
.tfplace td:first-child, .tfplace th:first-child { text-align: left; }
.tfplace .bar { width: 16em; background: #eee; }
.tfplace .bar div { height: 0.45em; min-width: 1px; }
.tfplace .key { display: inline-block; width: 0.8em; height: 0.8em; }
.tfplace .compute { background: #3a6ea5; }
.tfplace .transfer { background: #e0862b; }
@media (max-width: 600px) {
  .tfplace td, .tfplace th { padding: 0.2em 0.35em; }
  .tfplace .bar { width: 8em; }
  .tfplace td:first-child { white-space: normal; max-width: 10em; }
}
"""

_FIGURES = """
.figures { display: flex; flex-wrap: wrap; gap: 1.5em; }
.figures figure { margin: 0; flex: 1 1 min(100%, 560px); max-width: 640px; }
.figures figure img, .figures figure svg { width: 100%; }
.figures figcaption { color: #666; }
"""

_PAGE_STYLE = """
body { margin: 1em; font-family: sans-serif; font-size: 14px; background: white; overflow-wrap: break-word; }
.tfplace td:first-child, .tfplace th:first-child { position: sticky; left: 0; background: white; }
.tfplace caption span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 2em); }
.tfplace .wide {
  background:
    linear-gradient(to left, white 40%, transparent) right / 3em 100% no-repeat local,
    linear-gradient(to left, #0004, transparent) right / 1em 100% no-repeat white;
}
details { margin: 0.8em 0; }
summary { cursor: pointer; }
"""
"""What is white, such as the column that stays, is so on pages only: notebooks may be dark. The shadow at the right of
a table says that it goes on there."""

LEGEND = '<span class="key compute"></span> compute and <span class="key transfer"></span> transfer, as part of '
"""What the colors of the bars mean; the bars are drawn in the same classes."""


class Html(str):
    """A piece of HTML, which a notebook shows as such."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}{_FIGURES}</style>{self}"


def pictures_html(placement: Placement) -> Html:
    """Its pictures side by side.

    Raises:
      PlacementError: the placement does not know its problem.
    """
    return figures(placement_pictures(placement))


def placement_html(placement: Placement, *, style: bool = True) -> str:
    """The facts of the summary, with a bar per device, as one HTML element; every text is escaped.

    Args:
      placement: what is told of.
      style: whether it brings `STYLE`; a page has that in its head, the only place where HTML allows it.
    """
    parts = [f"<b>{escape(title(placement))}</b>", _devices(placement)]
    parts.append(_layers(placement))
    if placement.baselines:
        parts.append(_baselines(placement))
    lines = "<br>".join(map(escape, said(placement)))
    parts += [f"<p>{lines}<br><b>{escape(verdict(placement))}</b></p>"]
    own = f"<style>{STYLE}</style>" if style else ""
    return f'<div class="tfplace">{own}{"".join(parts)}</div>'


def page(name: str, body: str) -> str:
    """A page that needs nothing but itself.

    Args:
      name: its title, as text.
      body: HTML.
    """
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)}</title><style>{STYLE}{_FIGURES}{_PAGE_STYLE}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def figures(pictures: Iterable[Picture]) -> Html:
    """Pictures side by side as far as there is room, each with its caption."""
    each = (f"<figure>{one.html}<figcaption>{escape(one.caption)}</figcaption></figure>" for one in pictures)
    return Html(f'<div class="figures">{"".join(each)}</div>')


def _devices(placement: Placement) -> str:
    step = placement.predicted.step_s
    words = wording(placement.cost.objective)
    head = (*DEVICE_HEADINGS, LEGEND + words.whole)
    rows = ([*map(escape, row.cells()), _bar(row, step)] for row in device_facts(placement))
    return table(words.devices, head, rows)


def _layers(placement: Placement) -> str:
    """Closed at first, since a model may have hundreds."""
    rows = layer_facts(placement)
    if not rows:
        return ""
    inner = table(LAYERS, LAYER_HEADINGS, ([*map(escape, row.cells())] for row in rows))
    return f"<details><summary>Layers ({len(rows)})</summary>{inner}</details>"


def _bar(row: DeviceFacts, step_s: float) -> str:
    def part(kind: str, seconds: float) -> str:
        share = min(100.0, 100 * seconds / step_s) if step_s > 0 else 0.0
        return f'<div class="{kind}" style="width:{share:.1f}%" title="{kind} {format_seconds(seconds)}"></div>'

    return f'<div class="bar">{part("compute", row.compute_s)}{part("transfer", row.transfer_s)}</div>'


def _baselines(placement: Placement) -> str:
    rows = [[escape(f"this one, by {placement.placer}"), format_seconds(placement.cost.step_s), ""]]
    for name, cost in baseline_order(placement):
        against = misfit(cost, placement.device_names) or versus(placement, cost)
        said = escape(against) if cost.failure is None else f'<div class="long">{escape(against)}</div>'
        rows.append([escape(name), format_seconds(cost.step_s) if cost.feasible else "-", said])
    words = wording(placement.cost.objective, placement.cost.source)
    return table(words.others, ("placement", words.column, "against this one"), rows)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that is scrolled by itself where it is wider than its page, also by keys.

    Args:
      caption: text.
      head: HTML.
      rows: HTML.
    """
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    name = escape(caption)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{name}">'
        f"<table><caption><span>{name}</span></caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
