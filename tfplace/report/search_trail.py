"""How a search went on: the best so far whenever it got better, as its progress tells it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from tfplace.errors import PlacementError
from tfplace.files import parse_json, write_whole
from tfplace.search.progress import Progress

FILE = "search.json"


class SearchTrail:
    """A callback for progress that keeps what got better, and where the search ended.

    A search tells its progress a few times a second, so that of several improvements in between the last is kept.

    Args:
      then: is told, too.

    Attributes:
      points: in their order; the last is the end of the search.
    """

    def __init__(self, then: Callable[[Progress], None]) -> None:
        self.points: list[Progress] = []
        self._then = then

    def __call__(self, progress: Progress) -> None:
        """Keeps what is new, and passes it on."""
        if progress.best_s is not None:
            if len(self.points) > 1 and not _better(self.points[-1], self.points[-2]):
                self.points.pop()  # it was only where the search stood
            self.points.append(progress)
        self._then(progress)


def _better(one: Progress, other: Progress) -> bool:
    return (one.best_s, one.fits) != (other.best_s, other.fits)


def save_trail(path: Path, points: Sequence[Progress]) -> None:
    """Writes it as JSON.

    Raises:
      UnwrittenError: it cannot be written.
    """
    write_whole(path, json.dumps([asdict(point) for point in points], indent=1) + "\n")


def load_trail(path: Path) -> tuple[Progress, ...]:
    """Reads what `save_trail` wrote; nothing where there is no such file.

    Raises:
      PlacementError: it is something else.
    """
    if not path.exists():
        return ()
    try:
        return tuple(
            Progress(
                evaluations=int(one["evaluations"]),
                seconds=float(one["seconds"]),
                fraction=float(one["fraction"]),
                best_s=float(one["best_s"]),
                fits=bool(one["fits"]),
                stage=str(one["stage"]),
                source=str(one["source"]),
            )
            for one in parse_json(path.read_text(encoding="utf-8"))
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise PlacementError(
            f"{str(path)!r}, which is not the log of a search ({type(error).__name__}: {error})",
            "a log that `tfplace place --out` wrote",
            "Delete the file: the report then omits the search.",
        ) from error
