"""What goes wrong at the bridge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class GrapplerInputError(ValueError):
    """Refused before Grappler sees it, because it would crash on it or quietly answer another question.

    Attributes:
      received: what was given, as text.
      expected: what would have been accepted, as text.
      hint: what to do about it; may be empty.
    """

    def __init__(self, received: str, expected: str, hint: str = "") -> None:
        self.received = received
        self.expected = expected
        self.hint = hint
        super().__init__(f"received {received}; expected {expected}.{' ' + hint if hint else ''}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Survives the way between processes."""
        return type(self), (self.received, self.expected, self.hint)


class GrapplerError(RuntimeError):
    """Grappler itself gave up on a graph."""


@contextmanager
def grappler_errors(what: str) -> Iterator[None]:
    """Errors of native code inside become `GrapplerError`s.

    Args:
      what: what was being done, for the message.

    Raises:
      GrapplerError: TensorFlow raised, with the first line of what it said.
    """
    try:
        yield
    except (GrapplerInputError, GrapplerError):
        raise
    except (tf.errors.OpError, ValueError, LookupError, RuntimeError) as error:
        said = str(getattr(error, "message", error)).strip().splitlines()
        raise GrapplerError(f"Grappler failed to {what}: {said[0] if said else type(error).__name__}") from error
