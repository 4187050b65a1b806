"""What goes wrong at the bridge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf


class GrapplerInputError(ValueError):
    """Refused before Grappler sees it, because it would crash on it or quietly answer another question."""

    def __init__(self, received: str, expected: str, hint: str = "") -> None:
        super().__init__(f"received {received}; expected {expected}.{' ' + hint if hint else ''}")


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
    except GrapplerInputError:
        raise
    except (tf.errors.OpError, ValueError) as error:
        said = str(getattr(error, "message", error)).strip().splitlines()
        raise GrapplerError(f"Grappler failed to {what}: {said[0] if said else type(error).__name__}") from error
