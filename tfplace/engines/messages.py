"""What goes to workers and comes back, as bytes."""

from __future__ import annotations

import pickle
from typing import Any

from tfplace.errors import InputError


def packed(thing: Any) -> bytes:
    """Something to be sent to another process.

    Raises:
      InputError: it cannot be sent.
    """
    try:
        return pickle.dumps(thing)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"something that cannot be sent to another process ({error})",
            "functions and classes of a module, and arrays",
        ) from error


def opened(answer: bytes) -> Any:
    """What a task returned, of the answer that `tfplace.engines.worker_child` gave.

    Raises:
      Exception: what the task raised.
    """
    fine, told = pickle.loads(answer)
    if fine:
        return told
    raise told
