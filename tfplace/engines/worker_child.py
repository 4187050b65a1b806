"""What runs in the process of a worker; `tfplace.engines.worker_process` is the other end."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from typing import Any

from tfplace.engines.child_process import MessagePipe
from tfplace.errors import InputError, TfplaceError


def serve(pipe: MessagePipe) -> None:
    """Does tasks until there are no more."""
    sys.path[:], cores, make = pickle.loads(pipe.receive())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    own: list[Any] = []  # made with the first task, whose answer says what went wrong
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(_answer(own, make, pipe.receive()))


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
