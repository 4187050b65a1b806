"""The process of a worker.

    python -m tfplace.engines.worker_child FILE_DESCRIPTOR PARENT

Started by `tfplace.engines.worker_process`. It reads from the descriptor, a `multiprocessing` connection, until that is
closed, and ends with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from tfplace.errors import InputError, TfplaceError

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> None:
    """Does tasks until there are no more."""
    end_with(parent)
    os.set_inheritable(descriptor, False)  # what a task starts is not to hold it open
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
            own.append(_unpacked(make)())
        task, arguments = _unpacked(packed)
        return pickle.dumps((True, task(own[0], *arguments)))
    except BaseException as error:
        return _failure(error)


def _unpacked(packed: bytes) -> Any:
    try:
        return pickle.loads(packed)
    except (AttributeError, ImportError) as error:
        raise InputError(
            f"something that a worker cannot find ({error})", "functions and classes of a module that can be imported"
        ) from error


def _failure(error: BaseException) -> bytes:
    """Pickled: (False, the error), or one that says the same and survives the way."""
    if isinstance(error, TfplaceError):
        with contextlib.suppress(Exception):
            return pickle.dumps((False, error))
    told = TfplaceError(f"{type(error).__name__} in a worker: {error}")
    told.add_note("".join(traceback.format_exception(error)))
    return pickle.dumps((False, told))


def end_with(parent: int) -> None:
    """Lets the kernel end this process when the parent does, also in the middle of native code; Linux only.

    Elsewhere the process ends at its next look at the closed pipe.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had ended before
            os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
