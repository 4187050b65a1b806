"""Charts of what placers found, for pages. They need matplotlib: `pip install 'tfplace[plots]'`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.formatting import format_seconds
from tfplace.report.drawing import PALETTE, blank, caption, draw_cumulative, image, lines_legend, strokes

Points = Sequence[tuple[float, float]]
"""(evaluations, best so far) wherever that got better."""

_GRID = 120

FACTOR_SHOWN = 10.0
"""What a cumulative chart ends at."""


def steps_chart(steps: Mapping[str, Sequence[float]], bound: float, number: str = "step time") -> str:
    """A bar to each placer's median, a dot for each of its runs that fits, and a line at the bound.

    Args:
      steps: placer -> seconds of its runs; infinite where nothing fits.
      bound: in seconds.
      number: what the seconds are.
    """
    names = list(steps)
    medians = [float(np.median(steps[name])) for name in names]
    finite = [m for m in medians if math.isfinite(m)]
    most = min(max(finite, default=bound), 6 * min(finite, default=bound))  # one bad placer is not to hide the others
    figure, axis = blank(0.7 + 0.22 * len(names))
    end = 1.05 * most
    for row, (name, median) in enumerate(zip(reversed(names), reversed(medians), strict=True)):
        shown = min(median, end) if math.isfinite(median) else 0.0
        axis.barh(row, 1e3 * shown, height=0.65, color=PALETTE[0], alpha=0.75)
        runs = [1e3 * s for s in steps[name] if s <= end]
        if len(steps[name]) > 1:
            axis.plot(runs, [row] * len(runs), ".", color="black", markersize=3)
        axis.text(max([1e3 * shown, *runs]), row, _beside(steps[name], median, end), va="center")
    axis.axvline(1e3 * bound, color=PALETTE[3], linewidth=1)
    axis.set_yticks(range(len(names)), [caption(name) for name in reversed(names)])
    axis.set(
        xlabel="milliseconds; the line is the bound", xlim=(0, 1.15e3 * most or 1.0), ylim=(-0.7, len(names) - 0.3)
    )
    return image(figure, f"{number.capitalize()} of each placer")


def _beside(steps: Sequence[float], median: float, end: float) -> str:
    """What a bar and its dots cannot show."""
    if math.isinf(median):
        return " does not fit"
    unfit = sum(map(math.isinf, steps))
    said = [f" {format_seconds(median)}"] if median > end else []
    beyond = [s for s in steps if end < s < math.inf]
    if beyond and not said:
        said = [f" {len(beyond)} of {len(steps)} beyond, up to {format_seconds(max(beyond))}"]
    said += [f" {unfit} of {len(steps)} {'does' if unfit == 1 else 'do'} not fit"] if unfit else []
    return ",".join(said)


def curves_chart(runs: Mapping[str, Sequence[Points]], evaluations: float, number: str = "step time") -> str:
    """The best so far over the evaluations: the median of each placer's runs, and from their least to their most.

    Args:
      runs: placer -> its runs.
      evaluations: where the chart ends.
      number: what is best.
    """
    figure, axis = blank(3.0)
    drawn = False  # a logarithmic axis has to have something on it
    at = np.unique(np.round(np.geomspace(1, max(evaluations, 2), _GRID)))
    for (colour, drawing), (name, several) in zip(strokes(), runs.items(), strict=False):
        best = np.array([_best_so_far(points, at) for points in several]) * 1e3
        with np.errstate(invalid="ignore"):
            middle = np.median(best, axis=0)
        drawn |= bool((middle[np.isfinite(middle)] > 0).any())
        shown = np.where(np.isfinite(middle), middle, np.nan)
        axis.plot(at, shown, color=colour, linestyle=drawing, linewidth=1.3, label=caption(name))
        if len(best) > 1:
            low, high = best.min(axis=0), best.max(axis=0)
            whole = np.isfinite(high)
            axis.fill_between(at[whole], low[whole], high[whole], color=colour, alpha=0.15, linewidth=0)
    axis.set(xlabel="evaluations", ylabel="milliseconds", **({"xscale": "log", "yscale": "log"} if drawn else {}))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:g}")
    axis.tick_params(axis="y", which="minor", labelsize=8)
    lines_legend(figure, axis)
    return image(figure, f"Best {number} so far")


def cumulative_chart(numbers: Mapping[str, Sequence[float]], what: str, names: Sequence[str]) -> str:
    """Which part of some numbers is at most so large, a curve for each name.

    Args:
      numbers: name -> numbers above 0; infinite ones count, but are not reached.
      what: the numbers are.
      names: of curves to tell from others, which are pale.
    """
    figure, axis = blank(3.2)
    others = [each for name, each in numbers.items() if name not in names]
    draw_cumulative(axis, {name: numbers[name] for name in names}, (what, "part of the cases"), others)
    axis.set_xlim(None, FACTOR_SHOWN)
    lines_legend(figure, axis)
    return image(figure, "How many cases are within which factor")


def _best_so_far(points: Points, at: FloatArray) -> FloatArray:
    """[len(at)] infinite before the first point."""
    x, y = (np.array(column, np.float64) for column in zip(*points, strict=True)) if points else (np.zeros(0),) * 2
    place = np.searchsorted(x, at, side="right")
    best: FloatArray = np.concatenate([[np.inf], y])[place]
    return best
