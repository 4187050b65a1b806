"""The process in which Grappler runs, so that a crash in native code ends no other.

    python -m grappler_bridge.worker FILE_DESCRIPTOR PARENT

Started by `grappler_bridge.process`. It reads requests from the descriptor, a `multiprocessing` connection, until that
is closed, and ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> None:
    """Answers requests until there are no more."""
    _end_with(parent)
    from grappler_bridge.step import StepGraph

    with Connection(descriptor) as pipe:
        graph = StepGraph(pipe.recv())
        pipe.send(True)
        while True:
            try:
                method, arguments = pipe.recv()
            except EOFError:
                return
            pipe.send(_answer(graph, method, arguments))


def _answer(graph: Any, method: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """(True, what the method returned) or (False, the error it raised)."""
    from grappler_bridge.errors import GrapplerError, GrapplerInputError

    try:
        return True, getattr(graph, method)(*arguments)
    except (GrapplerInputError, GrapplerError) as error:
        return False, error
    except Exception as error:
        return False, GrapplerError(f"{type(error).__name__}: {error}")


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
