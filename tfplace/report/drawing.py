"""What all pictures of pages share: their size, their colors, and that they are within the page."""

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
_HOST, _PALE = "#9a9a9a", "#dddddd"

_LONG = 28
"""Letters of a name beyond which a picture shows its two ends."""

Stroke = str | tuple[int, tuple[float, ...]]
"""How a line is drawn, as matplotlib takes it."""


def caption(name: str) -> str:
    """A name as pictures show it: not too long, and nothing in it taken for a formula."""
    if len(name) > _LONG:
        name = f"{name[: _LONG // 2 - 1]}…{name[-_LONG // 2 :]}"
    return name.replace("$", r"\$")


def device_colours(names: Sequence[str]) -> list[str]:
    """One for each device: the host's is gray; those after the palette's are lighter and darker ones."""
    found, used = [], 0
    for name in names:
        if name.startswith("CPU") and len(names) > 1:
            found.append(_HOST)
        else:
            found.append(_shade(PALETTE[used % len(PALETTE)], used // len(PALETTE)))
            used += 1
    return found


def _shade(colour: str, again: int) -> str:
    """The color itself, then by turns lighter and darker, by more each time."""
    towards, share = (255 if again % 2 else 0), 1 - 1 / (1 + 0.4 * again)
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + share * (towards - part)):02x}" for part in parts)


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
        raise MissingExtraError("pictures without matplotlib", "matplotlib", "pip install 'tfplace[plots]'") from error
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axis = figure.add_subplot()
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def devices_legend(figure: Any, names: Sequence[str]) -> None:
    """The colors of devices, above the picture."""
    from matplotlib.patches import Patch

    keys = [Patch(color=colour, label=caption(name)) for name, colour in zip(names, device_colours(names), strict=True)]
    _legend(figure, keys, "outside upper center", handlelength=1)


def lines_legend(figure: Any, axis: Any) -> None:
    """The names of an axis's lines, below the picture: inside it would lie on them."""
    if lines := axis.get_legend_handles_labels()[0]:
        _legend(figure, lines, "outside lower center")


def _legend(figure: Any, keys: Sequence[Any], where: str, **kwargs: Any) -> None:
    """As many columns as there is room for; the figure becomes higher by what the legend takes."""
    for columns in range(min(len(keys), _COLUMNS), 0, -1):
        made = figure.legend(
            handles=keys, loc=where, ncols=columns, frameon=False, fontsize=_LEGEND, columnspacing=1.2, **kwargs
        )
        box = made.get_window_extent()
        if box.width <= figure.bbox.width or columns == 1:
            break
        made.remove()
    figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)


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
