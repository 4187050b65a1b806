"""Pieces of HTML that several sections of the page have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple


class Section(NamedTuple):
    """A part of the page.

    Attributes:
      key: its id.
      title: its heading, as text.
      html: what is in it; a section without is left out.
    """

    key: str
    title: str
    html: str

    def whole(self) -> str:
        """The element."""
        name = f"{self.key}-title"
        heading = f'<h2 id="{name}">{escape(self.title)}</h2>'
        return f'<section id="{self.key}" aria-labelledby="{name}">{heading}{self.html}</section>'


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
      html: what is in it.
      value: what a column is sorted by; None for its text.
      kind: its class.
    """

    html: str
    value: float | None = None
    kind: str = ""

    def whole(self, tag: str = "td") -> str:
        """The element; the first of a row is its heading."""
        kind = f' class="{self.kind}"' if self.kind else ""
        value = "" if self.value is None else f' data-value="{self.value:.9g}"'
        scope = ' scope="row"' if tag == "th" else ""
        return f"<{tag}{scope}{kind}{value}>{self.html}</{tag}>"


def table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[Cell]], *, key: str = "", scrolls: str = ""
) -> str:
    """A table that is scrolled by itself where it is wider than the page, also by keys.

    Args:
      caption: text.
      headings: texts.
      rows: the first cell of each names the row.
      key: an id; a table with one can be sorted by its headings.
      scrolls: a further class of what scrolls.
    """
    rows = list(rows)
    kinds = (
        [f' class="{cell.kind}"' if cell.kind == "text" else "" for cell in rows[0]] if rows else [""] * len(headings)
    )
    top = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in zip(headings, kinds, strict=True))
    body = "".join(f"<tr>{''.join(cell.whole('td' if i else 'th') for i, cell in enumerate(row))}</tr>" for row in rows)
    name, sorts = escape(caption), f' id="{key}" data-sorts' if key else ""
    return (
        f'<div class="wide {scrolls}" tabindex="0" role="region" aria-label="{name}">'
        f"<table{sorts}><caption><span>{name}</span></caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def colour_key(colour: str) -> str:
    """A small field of a color."""
    return f'<span class="key" style="background:{colour}"></span>'


def legend(names: Sequence[str], colours: Sequence[str]) -> str:
    """Which color is which."""
    items = (f"<li>{colour_key(c)}{escape(name)}</li>" for name, c in zip(names, colours, strict=True))
    return f'<ul class="legend">{"".join(items)}</ul>'


def note(text: str) -> str:
    """A line in a quiet color."""
    return f'<p class="quiet">{escape(text)}</p>'
