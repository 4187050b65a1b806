"""A process that makes a thing of its own and runs tasks on it; the starting side of `tfplace.engines.worker_child`."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Sequence

from tfplace.engines.child_process import ChildEndedError, ChildProcess
from tfplace.engines.worker_child import serve
from tfplace.errors import WorkersError

_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_NUM_INTRAOP_THREADS": "1"}
"""Shows no warnings, leaves GPUs to the caller, and has one thread for an operation: its sums depend on their number,
and results are to be the same on every machine."""


class Process:
    """Started with the first task, and anew with the next one after it ended.

    All but `kill` and `interrupt` is for one thread at a time.

    Args:
      make: the pickled function that makes what is its own.
      cores: the processors it has, where the system can do that.
    """

    def __init__(self, make: bytes, cores: Sequence[int]) -> None:
        self._make = make
        self._cores = cores
        self._child: ChildProcess | None = None
        self._changes = threading.Lock()
        self._killed = False

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        child = self._child
        return child.pid if child is not None else None

    def ask(self, task: bytes) -> bytes:
        """The answer to a pickled task and its arguments; see `tfplace.engines.messages.opened`.

        Raises:
          ChildEndedError: the process ended, or was killed.
          WorkersError: it cannot be started.
        """
        fresh, child = self._start()
        first = [pickle.dumps((sys.path, self._cores, self._make))] if fresh else []
        try:
            return child.ask(*first, task)
        except ChildEndedError:
            self.end()
            raise

    def interrupt(self) -> None:
        """Ends it in the middle of a task; the next task starts it anew. For any thread."""
        with self._changes:
            if self._child is not None:
                self._child.kill()

    def kill(self) -> None:
        """Ends it for ever, in the middle of a task too; for any thread."""
        with self._changes:
            self._killed = True
            if self._child is not None:
                self._child.kill()

    def end(self) -> None:
        """Ends it between two tasks."""
        with self._changes:
            child, self._child = self._child, None
        if child is not None:
            child.close()

    def _start(self) -> tuple[bool, ChildProcess]:
        if sys.platform == "win32":
            raise WorkersError("worker processes on Windows", "a system with Unix pipes", "Use no controllers.")
        with self._changes:
            if self._killed:
                raise ChildEndedError("when it was closed")
            if self._child is not None:
                return False, self._child
            try:
                self._child = ChildProcess(serve, _ENVIRONMENT)
            except OSError as error:
                raise WorkersError(f"a worker that cannot be started ({error})", "room for one more process") from error
            return True, self._child
