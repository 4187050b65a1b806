"""What every builder gives back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_MAY_BE_NONE = ("memory",)
"""Numbers of what a model can do without."""


@dataclass(frozen=True)
class Model:
    """A compiled model and what one of its training steps is given.

    Attributes:
      name: its name in the zoo.
      model: a compiled Keras model.
      batch: `(x, y)` as `tf.TensorSpec`s; nothing is downloaded or generated.
      paper: where the architecture, and its use as a placement benchmark, come from.
      departures: how it differs from what the papers describe.
    """

    name: str
    model: Any
    batch: tuple[Any, Any]
    paper: str
    departures: str


def check_sizes(build: Callable[..., Model], params: Mapping[str, Any]) -> None:
    """Refuses whole numbers below 1 where a builder's own are at least 1, or where it has none and counts something.

    There may be no `memory`, but no less.

    Raises:
      ValueError: there is one; says which.
    """
    for name, parameter in inspect.signature(build).parameters.items():
        value, own = params.get(name), parameter.default
        counts = own in (None, parameter.empty) or (type(own) is int and own >= 1)
        least = 0 if name in _MAY_BE_NONE else 1
        if counts and type(value) is int and value < least:
            raise ValueError(f"received {name}={value}; expected at least {least}.")


def check_divides(name: str, value: int, by_name: str, by: int) -> None:
    """Refuses sizes that do not go into one another.

    Raises:
      ValueError: `by` does not divide `value`.
    """
    if by < 1 or value % by:
        raise ValueError(f"received {name}={value}, {by_name}={by}; expected {by_name} to divide {name}.")
