"""What all pictures of pages share: their size, their colours, and that they are within the page."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tfplace.errors import MissingExtraError

_WIDTH, _DOTS = 6.4, 130
"""Inches, and dots to an inch: at half the size, as on a telephone, letters can still be read."""

PALETTE = ("#3a6ea5", "#e0862b", "#4d9a57", "#b5474b", "#7d5ba6", "#3aa6a0", "#c9a227", "#8c6d5b")
_HOST = "#9a9a9a"


def device_colours(names: Sequence[str]) -> list[str]:
    """One for each device: the host's is grey."""
    found, used = [], 0
    for name in names:
        if name.startswith("CPU") and len(names) > 1:
            found.append(_HOST)
        else:
            found.append(PALETTE[used % len(PALETTE)])
            used += 1
    return found


def cycle(count: int) -> list[str]:
    """As many colours; those after the palette's are lighter."""
    return [PALETTE[i % len(PALETTE)] + ("" if i < len(PALETTE) else "88") for i in range(count)]


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


def legend(axis: Any, names: Sequence[str]) -> None:
    """The colours of devices, above the picture."""
    from matplotlib.patches import Patch

    keys = [Patch(color=colour, label=name) for name, colour in zip(names, device_colours(names), strict=True)]
    axis.legend(
        handles=keys, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False, fontsize=8, handlelength=1
    )


def draw_cumulative(axis: Any, curves: Mapping[str, Sequence[float]], axes: tuple[str, str]) -> None:
    """Which part of some numbers above 0 is at most so large; infinite ones count, but are not reached."""
    for colour, (name, numbers) in zip(cycle(len(curves)), curves.items(), strict=True):
        ordered = sorted(number for number in numbers if math.isfinite(number))
        parts = [(i + 1) / len(numbers) for i in range(len(ordered))]
        axis.step([*ordered, max(ordered, default=1.0)], [0.0, *parts], where="pre", color=colour, label=name)
    axis.set(xlabel=axes[0], ylabel=axes[1], xscale="log", ylim=(0, 1))
    axis.set_xticks([1, 1.2, 1.5, 2, 3, 5, 10], ["1", "1.2", "1.5", "2", "3", "5", "10"])
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def image(figure: Any, alt: str) -> str:
    """The figure as an `img` element that has its data in itself."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DOTS, metadata={"Software": None})
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
