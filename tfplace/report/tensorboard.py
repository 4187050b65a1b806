"""A search as it goes on, for TensorBoard."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tfplace.errors import InputError, MissingExtraError
from tfplace.files import path_of

if TYPE_CHECKING:
    from tfplace.search.progress import Progress

BEST = "search/best_step_s"
"""Step seconds of the best placement so far, once one fits."""

TRAINING = "training/"
"""Before the names of `tfplace.learned.training.metrics.TAGS`."""


class Board:
    """Writes scalars over the number of evaluations into a directory that `tensorboard --logdir` shows.

    Args:
      path: of the directory; a search that goes on adds to what is there.

    Raises:
      MissingExtraError: tensorboardX is not installed.
      InputError: not a directory that can be written to.
    """

    def __init__(self, path: str | Path) -> None:
        make, folder = load_writer(), str(path_of("tensorboard", path))
        try:
            self._writer: Any = make(folder)
        except OSError as error:
            raise InputError(f"tensorboard={folder!r} ({error.strerror})", "a directory that can be made") from error

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def beside(self, tell: Callable[[Progress], None] | None) -> Callable[[Progress], None]:
        """What takes a search's progress and passes it on."""

        def both(progress: Progress) -> None:
            if progress.fits and progress.best_s is not None and math.isfinite(progress.best_s):
                self._writer.add_scalar(BEST, progress.best_s, progress.evaluations)
            if tell is not None:
                tell(progress)

        return both

    def training(self, evaluations: int, metrics: Mapping[str, float]) -> None:
        """What a policy says of its training."""
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(TRAINING + name, value, evaluations)


def load_writer() -> Any:
    """The class that writes TensorBoard's files.

    Raises:
      MissingExtraError: it is not installed.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise MissingExtraError(
            "tensorboard without tensorboardX", "tensorboardX", "pip install 'tfplace[tensorboard]'"
        ) from error
    return SummaryWriter
