"""A process that makes a thing of its own and runs tasks on it; the starting side of `tfplace.workers.child`."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any

from tfplace.core.cores import own_cores

_SAID_BYTES = 2000


class Process:
    """Started with the first task, and anew with the next one after it ended. All but `kill` is for one thread.

    Args:
      make: the pickled function that makes what is its own.
      number: which of the `shares` of the processors it has, counted round.
      shares: see `number`.
    """

    def __init__(self, make: bytes, number: int, shares: int) -> None:
        self._make = make
        cores = own_cores()
        self._cores = cores[number % shares :: shares] or (cores[number % len(cores)],)
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        # Appended to, so that reading it here does not move where the process writes.
        self._log: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (open as long as this is)
        self._changes = threading.Lock()
        self._killed = False

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        running = self._running
        return running[0].pid if running is not None else None

    def ask(self, task: bytes) -> tuple[bool, Any]:
        """(True, what the pickled task returned) or (False, the error it raised).

        Raises:
          EOFError, OSError: the process ended, or was killed.
        """
        try:
            pipe = self._start()
            pipe.send_bytes(task)
            answer: tuple[bool, Any] = pickle.loads(pipe.recv_bytes())
            return answer
        except (EOFError, OSError):
            self.end()
            raise

    def said(self) -> str:
        """The last of what it wrote, for an error message."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - _SAID_BYTES, 0))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1]}" if lines else ""

    def kill(self) -> None:
        """Ends it for ever, in the middle of a task too; for any thread."""
        with self._changes:
            self._killed = True
            if self._running is not None:
                self._running[0].kill()

    def end(self) -> None:
        """Ends it between two tasks."""
        with self._changes:
            if self._running is not None:
                process, pipe = self._running
                process.kill()
                process.wait()
                pipe.close()
                self._running = None

    def close(self) -> None:
        """Ends it, and nothing is asked of it any more."""
        self.end()
        self._log.close()

    def _start(self) -> Connection:
        with self._changes:
            if self._killed:
                raise EOFError
            if self._running is None:
                self._running = _popen(self._log)
                pipe = self._running[1]
                pipe.send((sys.path, self._cores))
                pipe.send_bytes(self._make)
            return self._running[1]


def _popen(log: IO[bytes]) -> tuple[subprocess.Popen[bytes], Connection]:
    pipe, far = Pipe()
    command = [sys.executable, "-m", "tfplace.workers.child", str(far.fileno()), str(os.getpid())]
    process = subprocess.Popen(
        command,
        pass_fds=[far.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for the caller, who closes this
    )
    far.close()
    return process, pipe


def _environment() -> dict[str, str]:
    """Finds this package, shows no warnings, and leaves GPUs to the caller."""
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path}
