"""What runs in Grappler's own process, so that a crash in native code ends no other.

Whoever starts the process, `tfplace.measurement.grappler_process`, sees to how it starts and ends.
"""

from __future__ import annotations

import contextlib
import pickle
from typing import Any, Protocol


class MessagePipe(Protocol):
    """Where requests come from and answers go to."""

    def send(self, message: bytes, /) -> None:
        """Sends an answer."""

    def receive(self) -> bytes:
        """The next request.

        Raises:
          EOFError: there are no more.
        """


def serve(pipe: MessagePipe) -> None:
    """Answers requests until there are no more; everything is pickled.

    The first is a `Step`, answered when its `StepGraph` is made; the others are a method's name with its arguments.
    """
    from grappler_bridge.step import StepGraph

    graph = StepGraph(pickle.loads(pipe.receive()))
    pipe.send(pickle.dumps(True))
    with contextlib.suppress(EOFError):
        while True:
            method, arguments = pickle.loads(pipe.receive())
            pipe.send(pickle.dumps(_answer(graph, method, arguments)))


def _answer(graph: Any, method: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """(True, what the method returned) or (False, the error it raised)."""
    from grappler_bridge.errors import GrapplerError, GrapplerInputError

    try:
        return True, getattr(graph, method)(*arguments)
    except (GrapplerInputError, GrapplerError) as error:
        return False, error
    except Exception as error:
        return False, GrapplerError(f"{type(error).__name__}: {error}")
