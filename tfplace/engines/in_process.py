"""Workers that are this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tfplace.core.engine import Result
from tfplace.errors import InputError


class InProcessEngine:
    """An `Engine` of this process: a task is done when it is submitted. What several workers do takes turns.

    Args:
      count: how many workers there are to be.

    Raises:
      InputError: fewer than 1.
    """

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise InputError(f"{count} workers", "at least 1")
        self.count = count

    def start(self, make: Callable[[], Any]) -> _InProcessWorkers:
        """See `Engine.start`."""
        return _InProcessWorkers(make(), self.count)


class _InProcessWorkers:
    def __init__(self, own: Any, count: int) -> None:
        self._own = own
        self.count = count

    def submit(self, task: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """See `Workers.submit`."""
        future: Future[Result] = Future()
        try:
            future.set_result(task(self._own, *arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """See `Workers.close`."""
