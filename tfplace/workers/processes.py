"""Workers that are processes of this machine."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tfplace.errors import ClusterError, InputError
from tfplace.workers.base import Result
from tfplace.workers.process import Process

_TRIES = 3
"""A task that ends its worker so often is not the victim but the cause."""


class Processes:
    """An `Engine` of local processes, each with its part of the processors where the system can do that.

    They load nothing of the program that starts them but what a task needs, ignore Ctrl-C, which is for that program,
    and end when it does. One that ends before is started anew.

    Args:
      count: how many.

    Raises:
      InputError: fewer than 1.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise InputError(f"{count} workers", "at least 1")
        self.count = count

    def start(self, make: Callable[[], Any]) -> Crew:
        """See `Engine.start`."""
        return Crew(make, self.count)


class Crew:
    """`Workers` that are processes. A thread for each hands it tasks from one queue.

    Args:
      make: see `Engine.start`.
      count: how many at first; see `resize`.

    Attributes:
      count: how many there are to be.

    Raises:
      InputError: `make` cannot be sent to another process.
    """

    def __init__(self, make: Callable[[], Any], count: int) -> None:
        self._make = _packed(make)
        self._tasks: queue.SimpleQueue[tuple[Future[Any], bytes] | None] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._shares = count
        self._begun = 0
        self.count = 0
        self.resize(count)

    @property
    def pids(self) -> list[int]:
        """Of the processes that run at the moment."""
        return [process.pid for process in self._processes if process.pid is not None]

    def resize(self, count: int) -> None:
        """Has so many workers from now on. Those that join begin at once; those that leave finish their tasks first."""
        for _ in range(self.count, count):
            process = Process(self._make, self._begun, self._shares)
            self._processes.append(process)
            self._begun += 1
            thread = threading.Thread(target=self._serve, args=(process,), daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in range(count, self.count):
            self._tasks.put(None)
        self.count = count

    def submit(self, task: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """See `Workers.submit`.

        Raises:
          InputError: the task cannot be sent to another process.
        """
        future: Future[Result] = Future()
        self._tasks.put((future, _packed((task, arguments))))
        return future

    def close(self) -> None:
        """See `Workers.close`."""
        self._closed = True
        for process in [*self._processes]:
            process.kill()
        self.resize(0)
        for thread in self._threads:
            thread.join()

    def _serve(self, process: Process) -> None:
        """Does tasks until there is a None among them; when everything is closed, cancels those that are left."""
        while (item := self._tasks.get()) is not None:
            future, task = item
            if self._closed:
                future.cancel()
            elif future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._done(process, task))
                except Exception as error:
                    future.set_exception(error)
        process.close()
        self._processes.remove(process)

    def _done(self, process: Process, task: bytes) -> Any:
        """The answer to a task, by a process that is started anew if it ends.

        Raises:
          ClusterError: the workers are closed, or the task ends every process.
          Exception: what the task raised.
        """
        for _ in range(_TRIES):
            try:
                fine, answer = process.ask(task)
            except (EOFError, OSError):
                if self._closed:
                    raise ClusterError("a worker that was closed meanwhile", "one that is at work") from None
                continue
            if fine:
                return answer
            raise answer
        raise ClusterError(f"a worker that ended {_TRIES} times in one task{process.said()}", "one that finishes it")


def _packed(thing: Any) -> bytes:
    try:
        return pickle.dumps(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"something that cannot be sent to another process ({error})", "what pickle can write"
        ) from error
