"""Pictures for papers and pages. They need matplotlib: `pip install 'tfplace[plots]'`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfplace.errors import InputError


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


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("a plot without matplotlib", "matplotlib", "pip install 'tfplace[plots]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
