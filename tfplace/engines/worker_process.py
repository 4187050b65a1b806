"""A process that makes a thing of its own and runs tasks on it; the starting side of `tfplace.engines.worker_child`."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO, Any, NamedTuple

from tfplace.engines.cores import own_cores
from tfplace.errors import WorkersError

_SAID_BYTES = 2000
_LOOK_S = 5.0
_GREETINGS = ("WARNING: All log messages before", "I0000", "W0000")
"""How lines begin that TensorFlow writes whenever it is loaded."""


class EndedError(Exception):
    """The process ended in a task, or was killed; says how."""


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
        self._running: _Running | None = None
        self._changes = threading.Lock()
        self._killed = False

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        running = self._running
        return running.process.pid if running is not None else None

    def ask(self, task: bytes) -> tuple[bool, Any]:
        """(True, what the pickled task returned) or (False, the error it raised).

        Raises:
          EndedError: the process ended, or was killed.
          WorkersError: it cannot be started.
        """
        try:
            fresh, running = self._start()
            if fresh:
                running.pipe.send((sys.path, self._cores))
                running.pipe.send_bytes(self._make)
            else:
                running.log.truncate(0)  # it would grow for ever
            running.pipe.send_bytes(task)
            # Looked at both: what it may have started can hold its end of the pipe open.
            while not wait([running.pipe, *running.ended], _LOOK_S):
                continue
            if not running.pipe.poll():
                raise EOFError
            answer = running.pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise EndedError(self.end()) from error
        done: tuple[bool, Any] = pickle.loads(answer)
        return done

    def kill(self) -> None:
        """Ends it for ever, in the middle of a task too; for any thread."""
        with self._changes:
            self._killed = True
            if self._running is not None:
                self._running.kill()

    def end(self) -> str:
        """Ends it between two tasks, and says how it ended if it had done so before, with the last that it wrote."""
        with self._changes:
            running, self._running = self._running, None
        return running.close() if running is not None else "was closed"

    def _start(self) -> tuple[bool, _Running]:
        with self._changes:
            if self._killed:
                raise EOFError
            fresh = self._running is None
            if self._running is None:
                self._running = _begin()
            return fresh, self._running


class _Running(NamedTuple):
    """A process with the pipe to it and a file of what it says.

    Attributes:
      ended: what can be waited for that becomes ready when the process ends, if the system has that.
    """

    process: subprocess.Popen[bytes]
    pipe: Connection
    log: IO[bytes]
    ended: list[int]

    def kill(self) -> None:
        """With all that it has started: it leads its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> str:
        """Ends it; see `Process.end`."""
        status = self.process.poll()
        self.kill()
        status = self.process.wait() if status is None else status
        self.pipe.close()
        for descriptor in self.ended:
            os.close(descriptor)
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        self.log.seek(max(self.log.seek(0, os.SEEK_END) - _SAID_BYTES, 0))
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines()]
        said = [line for line in lines if line and not line.startswith(_GREETINGS)]
        self.log.close()
        return f"{how}: {said[-1]}" if said else how


def _begin() -> _Running:
    if sys.platform == "win32":
        raise WorkersError("worker processes on Windows", "a system with Unix pipes", "Use no controllers.")
    with contextlib.ExitStack() as if_it_fails, contextlib.ExitStack() as begun:
        try:
            pipe, far = Pipe()
            begun.callback(far.close)
            if_it_fails.callback(pipe.close)
            log = if_it_fails.enter_context(tempfile.TemporaryFile("a+b"))
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tfplace.engines.worker_child", str(far.fileno()), str(os.getpid())],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the caller, who closes this
            )
        except OSError as error:
            raise WorkersError(f"a worker that cannot be started ({error})", "a process more") from error
        if_it_fails.pop_all()
        return _Running(process, pipe, log, _ends(process.pid))


def _ends(pid: int) -> list[int]:
    """What becomes ready when a process ends; nothing on systems that do not have that, such as Linux before 5.3."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []


def _environment() -> dict[str, str]:
    """Finds this package, shows no warnings, and leaves GPUs to the caller.

    With one thread for an operation: its sums depend on their number, and results are to be the same on every machine.
    """
    own = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_NUM_INTRAOP_THREADS": "1"}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(str(path) for path in sys.path if path)}
