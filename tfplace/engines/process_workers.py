"""Workers that are processes of this machine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from tfplace.core.engine import Result
from tfplace.engines.child_process import ChildEndedError
from tfplace.engines.cores import own_cores, shares
from tfplace.engines.messages import opened, packed
from tfplace.engines.worker_process import Process
from tfplace.errors import InputError, WorkersError

_TRIES = 3
"""A task that ends its worker so often is not the victim but the cause."""


class WorkerLostError(WorkersError):
    """A task was given up because the processes that did it ended."""


class ProcessEngine:
    """An `Engine` of local processes, each with its part of the processors where the system can do that.

    They load nothing of the program that starts them but what tasks need, ignore Ctrl-C, which is for that program, and
    end when it does. One that ends before is started anew. Each computes with one thread, so that results do not
    depend on the machine.

    Args:
      count: how many.
      cores: the processors of each worker; by default an equal part of this process's.
      tries: how many processes a task may end before it is given up.

    Raises:
      InputError: fewer than 1.
    """

    def __init__(self, count: int, *, cores: Sequence[Sequence[int]] | None = None, tries: int = _TRIES) -> None:
        if count < 1:
            raise InputError(f"{count} workers", "at least 1")
        self.count = count
        self._cores = cores if cores is not None else shares(own_cores(), count)
        self._tries = tries

    def start(self, make: Callable[[], Any]) -> ProcessWorkers:
        """See `Engine.start`."""
        return ProcessWorkers(make, self.count, self._cores, self._tries)


class ProcessWorkers:
    """`Workers` that are processes. A thread for each hands it tasks from one queue.

    Args:
      make: see `Engine.start`.
      count: how many at first; see `resize`.
      cores: the processors of each, counted round.
      tries: see `ProcessEngine`.

    Raises:
      InputError: `make` cannot be sent to another process.
    """

    def __init__(
        self, make: Callable[[], Any], count: int, cores: Sequence[Sequence[int]], tries: int = _TRIES
    ) -> None:
        self._make = packed(make)
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._processes: dict[int, Process] = {}
        self._threads: list[threading.Thread] = []
        self._changes = threading.Lock()
        self._closed = False
        self._cores = cores
        self._tries = tries
        self._count = 0
        self.resize(count)

    @property
    def count(self) -> int:
        """How many there are to be."""
        return self._count

    @property
    def pids(self) -> list[int]:
        """Of the processes that run at the moment."""
        return [process.pid for process in [*self._processes.values()] if process.pid is not None]

    def resize(self, count: int) -> None:
        """Has so many workers from now on. Those that join begin at once; those that leave finish their tasks first.

        Raises:
          InputError: fewer than 1.
          WorkersError: the workers are closed.
        """
        if count < 1:
            raise InputError(f"{count} workers", "at least 1")
        with self._changes:
            self._open()
            for _ in range(self._count, count):
                number = min({*range(len(self._processes) + 1)} - {*self._processes})
                self._processes[number] = Process(self._make, self._cores[number % len(self._cores)])
                thread = threading.Thread(target=self._serve, args=(number, self._processes[number]), daemon=True)
                self._threads.append(thread)
                thread.start()
            for _ in range(count, self._count):
                self._tasks.put(None)
            self._count = count

    def submit(self, task: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """See `Workers.submit`.

        Raises:
          InputError: the task cannot be sent to another process.
          WorkersError: the workers are closed.
        """
        future: Future[Result] = Future()
        message = packed((task, arguments))
        with self._changes:
            self._open()
            self._tasks.put(_Task(future, message))
        return future

    def close(self) -> None:
        """See `Workers.close`."""
        with self._changes:
            self._closed = True
            for process in [*self._processes.values()]:
                process.kill()
            for _ in range(self._count):
                self._tasks.put(None)
            self._count = 0
        for thread in self._threads:
            thread.join()

    def _open(self) -> None:
        if self._closed:
            raise WorkersError("a task for workers that are closed", "open workers")

    def _serve(self, number: int, process: Process) -> None:
        """Does tasks until there is a None among them; when everything is closed, cancels those that are left."""
        while (task := self._tasks.get()) is not None:
            if self._closed:
                task.future.cancel()
            if task.future.set_running_or_notify_cancel():
                try:
                    task.future.set_result(self._done(process, task.packed))
                except BaseException as error:
                    task.future.set_exception(error)
        process.end()
        del self._processes[number]

    def _done(self, process: Process, task: bytes) -> Any:
        """The answer to a task, by a process that is started anew if it ends.

        Raises:
          WorkerLostError: the task ends every process.
          WorkersError: the workers are closed, or no process can be started.
          Exception: what the task raised.
        """
        ends: list[str] = []
        while len(ends) < self._tries:
            try:
                answer = process.ask(task)
            except ChildEndedError as error:
                if self._closed:
                    raise WorkersError("a worker that was closed during a task", "an open worker") from None
                ends.append(str(error))
                continue
            return opened(answer)
        times = f"{self._tries} times in one task, the last time" if self._tries > 1 else "in a task"
        raise WorkerLostError(f"a worker that ended {times} {ends[-1]}", "a worker that finishes the task")


class _Task(NamedTuple):
    """What is to be done, and who waits for it."""

    future: Future[Any]
    packed: bytes
