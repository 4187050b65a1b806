"""What is going on, on stderr: a bar on a terminal, a line per long stage elsewhere."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tfplace.core.notices import LISTENERS
from tfplace.formatting import format_seconds

if TYPE_CHECKING:
    from tfplace.search.progress import Progress as SearchProgress

LONG_S = 2.0

_BAR = 16
"""Columns; what goes on needs most of 80."""

FIRST_S, AGAIN_S = 2.0, 15.0
"""Seconds of a stage after which a line says that it goes on, and seconds between further ones."""


class Stages:
    """Shows one stage after the other; silent if `quiet`.

    A terminal or notebook sees a moving bar; any other stderr gets a line as soon as a stage has taken two seconds,
    further ones while it goes on, and one with its seconds at its end.

    Args:
      quiet: show nothing.
      only_bar: leave no lines behind.
    """

    def __init__(self, quiet: bool, *, only_bar: bool = False) -> None:
        # TensorFlow's messages have "[/device:GPU:0]" and addresses have ":100:": neither styles nor pictures here
        self._console = Console(stderr=True, quiet=quiet, markup=False, emoji=False)
        self._notes = not only_bar
        self._bar = Progress(
            SpinnerColumn(),
            TimeElapsedColumn(),
            BarColumn(_BAR),
            TextColumn("{task.description}", markup=False),  # last, as it is cut where there is no room
            console=self._console,
            transient=True,
            disable=quiet or not self.moves,
        )
        self._task: TaskID | None = None
        self._stage = ""
        self._note = ""
        self._since = time.monotonic()
        self._timer: threading.Timer | None = None

    @property
    def moves(self) -> bool:
        """Whether there is a terminal or a notebook to move a bar on."""
        return self._console.is_terminal or self._console.is_jupyter

    def __enter__(self) -> Stages:
        LISTENERS.append(self.note)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        LISTENERS.remove(self.note)
        self._close()
        self._bar.stop()

    def stage(self, text: str) -> None:
        """Ends the stage before and starts the next."""
        self._close()
        self._stage, self._note, self._since = text, "", time.monotonic()
        self._task = self._bar.add_task(text, total=None)
        self._say_after(FIRST_S)

    def search(self, progress: SearchProgress) -> None:
        """Shows how far the search is and the best step time so far."""
        if progress.best_s is not None:
            best = format_seconds(progress.best_s) + ("" if progress.fits else ", which does not fit yet")
            self._note = f", best so far {best} ({progress.source}), by {progress.stage}"
        if self._task is not None:
            self._bar.update(self._task, description=self._stage + self._note, total=1.0, completed=progress.fraction)

    def part(self, done: int, total: int) -> None:
        """Shows how much of the stage is done."""
        if self._task is not None:
            self._bar.update(self._task, description=f"{self._stage}, {done} of {total}", total=total, completed=done)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Shows how much of a stage is done, which begins if it is another than the last."""
        if stage != self._stage:
            self.stage(stage)
        self.part(done, total)

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def _say_after(self, seconds: float) -> None:
        """Has a line say what goes on, unless something moves that does, or the stage ends before."""
        if self.moves or self._console.quiet or not self._notes:
            return
        self._timer = threading.Timer(seconds, self._say)
        self._timer.daemon = True
        self._timer.start()

    def _say(self) -> None:
        self.note(f"{self._stage}{self._note} ...")
        self._say_after(AGAIN_S)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._bar.remove_task(self._task)
            took = time.monotonic() - self._since
            if took > LONG_S and self._notes:
                self.note(f"{self._stage}: {format_seconds(took)}{self._note}")
        self._task = None
