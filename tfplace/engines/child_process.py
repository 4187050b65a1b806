"""Child processes: how they are started, asked, watched and ended.

A child runs `serve(pipe)`, a function of a module, in a Python of its own:

    python -P -m tfplace.engines.child_process MODULE:FUNCTION PARENT

Messages go through its standard input and output. Whatever it prints goes to a log instead, whose last lines tell why
it ended. It finds the modules that its parent finds. Ctrl-C is for the parent alone, and the child ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any

from tfplace.core.engine import LOOK_S

_PR_SET_PDEATHSIG = 1
_LENGTH = struct.Struct("!Q")
_PART_BYTES = 2**20
_SAID_BYTES = 4000
_END_S = 10.0
"""How long the system may take to end a process that was killed."""
_GREETINGS = ("WARNING: All log messages before", "I0000", "W0000")
"""How lines begin that TensorFlow writes whenever it is loaded."""
_FATAL = ("F0", "F1")
"""How lines begin in which native code says why it gives up: F and the month."""


class ChildEndedError(Exception):
    """The child ended, or was killed, before it answered; says how."""


class ChildTimeoutError(Exception):
    """The child had no answer in time, and was ended."""


class MessagePipe:
    """Messages of bytes, each after its length.

    The system writes a short message (4 KiB on Linux) in one piece, so several processes may write to one pipe.

    Args:
      reader: unbuffered.
      writer: unbuffered.
    """

    def __init__(self, reader: FileIO, writer: FileIO) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: bytes) -> None:
        """Writes a message.

        Raises:
          OSError: nobody reads any more.
          ValueError: this end is closed.
        """
        rest = memoryview(_LENGTH.pack(len(message)) + message)
        while rest:
            rest = rest[self._writer.write(rest) :]

    def receive(self) -> bytes:
        """The next message, waited for.

        Raises:
          EOFError: nobody writes any more.
          OSError, ValueError: this end cannot be read, or is closed.
        """
        return self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0])

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait()
            part = self._reader.read(min(size - len(data), _PART_BYTES))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _wait(self) -> None:
        """Returns at the latest when something can be read."""


class ChildProcess:
    """A Python process that serves its parent. `kill` and `ended` are for any thread, the rest for one at a time.

    It ends with `close`, with this object and with this process, however that ends. On Linux the kernel sees to it,
    also in the middle of native code, and does so when the *thread* that started the child ends; elsewhere the child
    ends when it next looks at its closed pipe. So a child that is to stay is started by a thread that stays.

    Args:
      serve: a function of a module, called in the child with its end of the pipe; the child ends when it returns.
      environment: variables that differ from this process's.

    Raises:
      OSError: it cannot be started.
    """

    def __init__(self, serve: Callable[[Any], None], environment: Mapping[str, str] | None = None) -> None:
        self._how = self._said = ""
        self._lock = threading.Lock()
        # Appended to, so that reading it here does not move where the child writes.
        self._log = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115  # open as long as the child runs
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, f"{serve.__module__}:{serve.__qualname__}", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                env={**os.environ, **(environment or {}), "PYTHONPATH": _python_path()},
                start_new_session=True,  # Ctrl-C is for the parent; and what the child starts is ended with it
            )
        except BaseException:
            self._log.close()
            raise
        self._pipe = _ParentEnd(self._process)
        self._finalizer = weakref.finalize(self, _dispose, self._process, self._log)
        self._finalizer.atexit = False  # with this process it ends anyway

    @property
    def pid(self) -> int:
        """Its number, which the system may give to another process once it is closed."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def send(self, message: bytes) -> None:
        """As `MessagePipe.send`."""
        self._pipe.send(message)

    def receive(self) -> bytes:
        """As `MessagePipe.receive`; ends with the child, though what that has started holds the pipe open."""
        return self._pipe.receive()

    def ask(self, *messages: bytes, timeout_s: float | None = None) -> bytes:
        """Sends messages and waits for the answer to the last.

        Without one the child is closed, also when this is interrupted: an answer that comes later must not be taken
        for that of the next question.

        Raises:
          ChildEndedError: it ended, or was killed.
          ChildTimeoutError: no answer in `timeout_s` seconds.
        """
        late = threading.Event()
        self.read_log()  # it would grow for ever
        try:
            with self._killed_after(timeout_s, late):
                for message in messages:
                    self._pipe.send(message)
                return self._pipe.receive()
        except (EOFError, OSError, ValueError) as error:
            how = self.close()
            if late.is_set():
                raise ChildTimeoutError(f"no answer within {timeout_s:g} s") from error
            raise ChildEndedError(how) from error
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def _killed_after(self, timeout_s: float | None, late: threading.Event) -> Iterator[None]:
        """A child that hangs may not even read a message, so what ends the wait is the end of the child."""
        if timeout_s is None:
            yield
            return

        def give_up() -> None:
            late.set()
            self.kill()

        timer = threading.Timer(timeout_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def read_log(self) -> str:
        """What it has written since this was last called, at most the last 4,000 bytes."""
        with self._lock:
            text, self._said = self._said, ""
            if not self._log.closed:
                self._log.seek(max(self._log.seek(0, os.SEEK_END) - _SAID_BYTES, 0))
                text = self._log.read().decode(errors="replace")
                self._log.truncate(0)
            return text

    def hang_up(self) -> None:
        """Closes the pipe to it, at which it should end."""
        _close(self._process.stdin)

    def kill(self) -> None:
        """Ends it at once, with all that it has started."""
        with self._lock:
            if not self._how:
                _kill(self._process)

    def close(self, grace_s: float = 0.0) -> str:
        """Ends it, unless it has ended, and says how it ended, with a line that it wrote; again it says the same.

        Args:
          grace_s: how long it may take to end by itself, before it is killed.
        """
        if not self._how:
            self.hang_up()
            status = _status(self._process, grace_s)
            self.kill()
            status = _status(self._process, _END_S) if status is None else status
            said = self.read_log()
            with self._lock:
                self._how, self._said = _told(status, said), said
                self._finalizer()
        return self._how


class _ParentEnd(MessagePipe):
    """The parent's end. It does not trust the pipe alone: what the child has started may hold that open."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert isinstance(process.stdout, FileIO) and isinstance(process.stdin, FileIO)  # since unbuffered
        super().__init__(process.stdout, process.stdin)
        self._process = process

    def _wait(self) -> None:
        if sys.platform == "win32":  # where there is no waiting for such a pipe
            return
        # Looked up from: the system may give Ctrl-C to another thread, which wakes nobody.
        reader = self._reader.fileno()
        while not wait([reader], LOOK_S):
            if self._process.poll() is not None and not wait([reader], 0):
                raise EOFError


def end_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the thread that made it ends, as it does with its process; Linux only.

    Args:
      parent: its process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before it could be heard of
            os._exit(1)


def main(target: str, parent: str) -> None:
    """The child's life.

    Args:
      target: "module:function", which is called with the child's end of the pipe.
      parent: the process that started this one.
    """
    end_with_parent(int(parent))
    reader, writer = os.dup(0), os.dup(1)  # which what this process starts does not inherit
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # so that nothing that is printed is taken for a message
    module, _, function = target.partition(":")
    serve = getattr(importlib.import_module(module), function)
    # Open to the very end, so that the parent sees how this process ended as soon as it misses it.
    serve(MessagePipe(FileIO(reader, "r", closefd=False), FileIO(writer, "w", closefd=False)))


def _python_path() -> str:
    """What this process finds, in the same order, so that nothing hides another; less the current directory.

    The checkout comes last, for a program that found this package without it.
    """
    return os.pathsep.join(dict.fromkeys([*(str(path) for path in sys.path if path), str(Path(__file__).parents[2])]))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # it leads its session


def _status(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(within_s)
    return None


def _told(status: int | None, said: str) -> str:
    """How a process ended, with the line that tells most."""
    if status is None:
        return f"not within {_END_S:g} s of being killed"
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    lines = [line.strip() for line in said.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_GREETINGS)]
    fatal = [line for line in lines if line.startswith(_FATAL) or "Error" in line]
    return ": ".join([how, *(fatal or lines)[-1:]])


def _dispose(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    _kill(process)
    _status(process, _END_S)
    for file in (process.stdin, process.stdout, log):
        _close(file)


def _close(file: IO[bytes] | None) -> None:
    if file is not None:
        file.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
