"""What all charts by matplotlib share: their size, their colors, and that they are within the page."""

from __future__ import annotations

import base64
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from tfplace.errors import MissingExtraError

_WIDTH, _DOTS = 5.6, 150
"""Inches, and dots to an inch: at half the size, as on a telephone, letters can still be read."""

_LEGEND, _COLUMNS = 11, 5
"""Points of a legend's letters, and the most columns it has."""

PALETTE = ("#3a6ea5", "#e0862b", "#4d9a57", "#b5474b", "#7d5ba6", "#3aa6a0", "#c9a227", "#8c6d5b")
_PALE = "#dddddd"

_LONG = 28
"""Letters of a name beyond which a picture shows its two ends."""

Stroke = str | tuple[int, tuple[float, ...]]
"""How a line is drawn, as matplotlib takes it."""


def caption(name: str) -> str:
    """A name as pictures show it: not too long, and nothing in it taken for a formula."""
    if len(name) > _LONG:
        name = f"{name[: _LONG // 2 - 1]}…{name[-_LONG // 2 :]}"
    return name.replace("$", r"\$")


def strokes() -> Iterator[tuple[str, Stroke]]:
    """Colors and how lines are drawn, no two alike: each round of the palette has dashes with one more dot between."""
    for again in itertools.count():
        drawn: Stroke = (0, (4.0, 1.5) + (1.0, 1.5) * (again - 1)) if again else "solid"
        yield from ((colour, drawn) for colour in PALETTE)


def blank(height: float) -> tuple[Any, Any]:
    """A figure of so many inches and its axis.

    Raises:
      MissingExtraError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("charts without matplotlib", "matplotlib", "pip install 'tfplace[plots]'") from error
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axis = figure.add_subplot()
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def lines_legend(figure: Any, axis: Any) -> None:
    """The names of an axis's lines, below the picture: inside it would lie on them.

    As many columns as there is room for; the figure becomes higher by what the legend takes.
    """
    keys = axis.get_legend_handles_labels()[0]
    for columns in range(min(len(keys), _COLUMNS), 0, -1):
        made = figure.legend(
            handles=keys, loc="outside lower center", ncols=columns, frameon=False, fontsize=_LEGEND, columnspacing=1.2
        )
        box = made.get_window_extent()
        if box.width <= figure.bbox.width or columns == 1:
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            break
        made.remove()


def draw_cumulative(
    axis: Any, curves: Mapping[str, Sequence[float]], axes: tuple[str, str], behind: Sequence[Sequence[float]] = ()
) -> None:
    """Which part of some numbers above 0 is at most so large; infinite ones count, but are not reached.

    Those behind are pale, and have no names.
    """
    for numbers in behind:
        axis.step(*_cumulated(numbers), where="pre", color=_PALE, linewidth=1)
    for (colour, drawn), (name, numbers) in zip(strokes(), curves.items(), strict=False):
        axis.step(*_cumulated(numbers), where="pre", color=colour, linestyle=drawn, label=caption(name))
    axis.set(xlabel=axes[0], ylabel=axes[1], xscale="log", ylim=(0, 1))
    axis.set_xticks([1, 1.2, 1.5, 2, 3, 5, 10], ["1", "1.2", "1.5", "2", "3", "5", "10"])
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def _cumulated(numbers: Sequence[float]) -> tuple[list[float], list[float]]:
    ordered = sorted(number for number in numbers if math.isfinite(number))
    parts = [(i + 1) / len(numbers) for i in range(len(ordered))]
    return [*ordered, max(ordered, default=1.0)], [0.0, *parts]


def image(figure: Any, alt: str) -> str:
    """The figure as an `img` element that has its data in itself."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DOTS, metadata={"Software": None})
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
