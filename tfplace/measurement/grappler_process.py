"""Grappler in a process of its own: what ends that process, or keeps it from answering, is an error and no more."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from grappler_bridge.errors import GrapplerLostError, GrapplerTimeOutError
from grappler_bridge.step import Step, StepFigures

_ROOT = Path(__file__).resolve().parent.parent
_END_S = 2.0
_SAID_BYTES = 2000


class GrapplerProcess:
    """A `StepGraph` in another process, started by the first question and anew after it was lost.

    Not to be shared by threads. The process ends with `close`, with this object, with this process, and on Linux with
    the thread that started it (the next question then starts another).

    Args:
      step: the graph.
      time_out_s: seconds after which a question is given up and the process ended; starting it is not counted.
      start_s: the same for starting it, which loads TensorFlow.
    """

    def __init__(self, step: Step, time_out_s: float = 300.0, start_s: float = 300.0) -> None:
        self._step = step
        self._time_out_s = time_out_s
        self._start_s = start_s
        self._running: _Running | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, or None while there is none."""
        return self._running.process.pid if self._running else None

    def own_s(self, op_device: Sequence[int]) -> float:
        """As `StepGraph.own_s`.

        Raises:
          GrapplerInputError, GrapplerError: as there.
          GrapplerLostError: the process ended without an answer.
          GrapplerTimeOutError: no answer in time.
        """
        return float(self._ask("own_s", op_device))

    def figures(self, op_device: Sequence[int]) -> StepFigures:
        """As `StepGraph.figures`; raises what `own_s` raises."""
        figures: StepFigures = self._ask("figures", op_device)
        return figures

    def start(self) -> None:
        """Starts the process unless it runs; questions do that by themselves.

        Raises:
          GrapplerLostError, GrapplerTimeOutError: it did not come up.
        """
        if self._running and self._running.process.poll() is not None:
            self.close()
        if self._running is None:
            self._running = _Running()
            self._exchange(self._step, self._start_s)

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self._running is not None:
            self._running.end()
            self._running = None

    def _ask(self, method: str, *arguments: Any) -> Any:
        self.start()
        done, answer = self._exchange((method, arguments), self._time_out_s)
        if done:
            return answer
        raise answer

    def _exchange(self, question: Any, time_out_s: float) -> Any:
        """Sends something and waits for what comes back."""
        assert self._running is not None
        running, late = self._running, threading.Event()

        def give_up() -> None:
            late.set()
            running.process.kill()

        # A process that hangs may not even read the question, so what ends the wait is the end of the process.
        timer = threading.Timer(time_out_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            running.forget()
            running.pipe.send(question)
            return running.pipe.recv()
        except (EOFError, OSError) as error:
            status, said = running.process.wait(), running.said()
            self.close()
            if late.is_set():
                raise GrapplerTimeOutError(f"Grappler had no answer within {time_out_s:g} s") from error
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            raise GrapplerLostError(f"the process in which Grappler ran ended {how}{said}") from error
        except BaseException:  # interrupted: an answer that comes later must not be taken for that of the next question
            self.close()
            raise
        finally:
            timer.cancel()


class _Running:
    """A process with the pipe to it and a file of what it says."""

    def __init__(self) -> None:
        self.pipe, far = Pipe()
        # Appended to, so that reading it here does not move where the process writes.
        self._log: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (open as long as the process runs)
        command = [sys.executable, "-P", "-m", "grappler_bridge.worker", str(far.fileno()), str(os.getpid())]
        self.process = subprocess.Popen(
            command,
            pass_fds=[far.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the caller, who closes this
        )
        far.close()
        self.end = weakref.finalize(self, _end, self.process, self.pipe, self._log)

    def forget(self) -> None:
        """Empties the file, which would grow for ever."""
        self._log.truncate(0)

    def said(self) -> str:
        """The last of what the process wrote, for an error message."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - _SAID_BYTES, 0))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith("F") or "Error" in line]
        return f": {(fatal or lines)[-1]}" if lines else ""


def _environment() -> dict[str, str]:
    """Finds this package, shows no warnings, and leaves GPUs, which virtual devices do not need, to others."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    return {**os.environ, **quiet, "PYTHONPATH": path}


def _end(process: subprocess.Popen[bytes], pipe: Connection, log: IO[bytes]) -> None:
    pipe.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    log.close()
