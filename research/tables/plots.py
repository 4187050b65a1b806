"""Pictures for papers and pages. They need matplotlib: `pip install 'tfplace[plots]'`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfplace.errors import MissingExtraError
from tfplace.report.drawing import draw_cumulative, lines_legend

_HOTTEST = 5.0


def scatter(
    path: str | Path, panels: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, axes: tuple[str, str]
) -> None:
    """Writes one panel a graph: true against predicted, with the line on which they agree.

    Args:
      path: of the picture; its ending decides the format.
      panels: title -> (predicted, true).
      axes: what the horizontal and the vertical axis show.

    Raises:
      InputError: matplotlib is missing.
    """
    plt = _pyplot()
    figure, grid = plt.subplots(1, len(panels), figsize=(3.2 * len(panels), 3.2), squeeze=False)
    for axis, (title, (predicted, true)) in zip(grid[0], panels.items(), strict=True):
        low, high = 0.95 * min(*predicted, *true), 1.05 * max(*predicted, *true)
        axis.plot([low, high], [low, high], color="0.7", linewidth=1)
        axis.scatter(predicted, true, s=14)
        axis.set(title=title, xlabel=axes[0], xlim=(low, high), ylim=(low, high), aspect="equal")
    grid[0][0].set_ylabel(axes[1])
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def heat_map(
    path: str | Path, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], *, what: str
) -> None:
    """Writes a table of numbers of at least 1 as colours on a logarithmic scale, each with its number.

    Args:
      path: of the picture; its ending decides the format.
      rows: names, top to bottom.
      columns: names, left to right.
      values: [rows][columns]; infinite is shown as a cross, NaN is left empty.
      what: what the numbers are.

    Raises:
      InputError: matplotlib is missing.
    """
    plt = _pyplot()
    from matplotlib.colors import LogNorm

    size = (2.6 + 0.55 * len(columns), 1.6 + 0.32 * len(rows))
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    shown = [[value if math.isfinite(value) else math.nan for value in row] for row in values]
    norm = LogNorm(1.0, _HOTTEST, clip=True)
    image = axis.imshow(shown, norm=norm, cmap="viridis_r", aspect="auto")
    axis.set_xticks(range(len(columns)), columns, rotation=60, ha="right")
    axis.set_yticks(range(len(rows)), rows)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if not math.isnan(value):
                text = f"{value:.2f}" if math.isfinite(value) else "\N{MULTIPLICATION SIGN}"
                dark = math.isfinite(value) and norm(value) > 0.5
                axis.text(x, y, text, ha="center", va="center", fontsize=7, color="white" if dark else "black")
    figure.colorbar(image, label=what, ticks=[1, 1.5, 2, 3, 5], format="%g").minorticks_off()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def cumulative(path: str | Path, panels: Mapping[str, Mapping[str, Sequence[float]]], *, axes: tuple[str, str]) -> None:
    """Writes which part of some numbers is at most so large, a curve for each name, in one panel a title.

    Args:
      path: of the picture; its ending decides the format.
      panels: title -> name -> numbers above 0; infinite ones count, but are not reached. The same names in each.
      axes: what the horizontal and the vertical axis show.

    Raises:
      InputError: matplotlib is missing.
    """
    plt = _pyplot()
    figure, grid = plt.subplots(
        1, len(panels), figsize=(4.8 * len(panels), 3.8), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, (title, curves) in zip(grid[0], panels.items(), strict=True):
        draw_cumulative(axis, curves, axes)
        axis.set_title(title)
        axis.label_outer()
    lines_legend(figure, grid[0, 0])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def scaling_curves(
    path: str | Path, panels: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], *, axes: tuple[str, str]
) -> None:
    """Writes rates over numbers of devices, both logarithmic, one panel a title; pale lines are in proportion.

    Args:
      path: of the picture; its ending decides the format.
      panels: title -> name -> (devices, rate); every second name is drawn dashed.
      axes: what the horizontal and the vertical axis show.

    Raises:
      InputError: matplotlib is missing.
    """
    plt = _pyplot()
    figure, grid = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), squeeze=False, layout="constrained")
    for axis, (title, curves) in zip(grid[0], panels.items(), strict=True):
        for i, (name, points) in enumerate(curves.items()):
            devices, rates = zip(*points, strict=True)
            if i % 2 == 0:
                axis.plot(devices, [rates[0] * n / devices[0] for n in devices], color="0.85", linewidth=1)
            axis.plot(devices, rates, f"C{i // 2}{'--' if i % 2 else '-'}", marker="s" if i % 2 else "o", label=name)
        axis.set(title=title, xlabel=axes[0], xscale="log", yscale="log")
        shown = sorted({n for points in curves.values() for n, _ in points})
        axis.set_xticks(shown, [str(n) for n in shown])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    grid[0][0].set_ylabel(axes[1])
    lines_legend(figure, grid[0, 0])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def gain_curves(path: str | Path, curves: Mapping[str, Sequence[tuple[int, float]]], *, axes: tuple[str, str]) -> None:
    """Writes ratios over numbers of workers, of which the scale is logarithmic.

    Args:
      path: of the picture; its ending decides the format.
      curves: name -> (workers, ratio).
      axes: what the horizontal and the vertical axis show.

    Raises:
      InputError: matplotlib is missing.
    """
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    for name, points in curves.items():
        axis.plot(*zip(*points, strict=True), marker="o", label=name)
    axis.set(xlabel=axes[0], ylabel=axes[1], xscale="log")
    shown = sorted({n for points in curves.values() for n, _ in points})
    axis.set_xticks(shown, [str(n) for n in shown])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("a plot without matplotlib", "matplotlib", "pip install 'tfplace[plots]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
