"""The process of a worker.

    python -m tfplace.workers.child FILE_DESCRIPTOR PARENT

Started by `tfplace.workers.process`. It reads from the descriptor, a `multiprocessing` connection, until that is
closed, and ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from tfplace.errors import TfplaceError

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> None:
    """Does tasks until there are no more."""
    _end_with(parent)
    with Connection(descriptor) as pipe:
        sys.path[:], cores = pipe.recv()
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        make = pipe.recv_bytes()
        own: list[Any] = []  # made with the first task, whose answer says what went wrong
        while True:
            try:
                task = pipe.recv_bytes()
            except EOFError:
                return
            pipe.send_bytes(_answer(own, make, task))


def _answer(own: list[Any], make: bytes, packed: bytes) -> bytes:
    """Pickled: (True, what the task returned) or (False, the error it raised)."""
    try:
        if not own:
            own.append(pickle.loads(make)())
        task, arguments = pickle.loads(packed)
        return pickle.dumps((True, task(own[0], *arguments)))
    except Exception as error:
        return pickle.dumps((False, _sendable(error)))


def _sendable(error: Exception) -> Exception:
    """The error, or one that says the same and survives the way."""
    if isinstance(error, TfplaceError):
        return error
    return TfplaceError(f"{type(error).__name__} in a worker: {error}")


def _end_with(parent: int) -> None:
    """Lets the kernel end this process when the parent does, also in the middle of native code; Linux only.

    Elsewhere the process ends at its next look at the closed pipe.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had ended before
            os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
