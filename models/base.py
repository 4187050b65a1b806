"""What every builder gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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


def check_divides(name: str, value: int, by_name: str, by: int) -> None:
    """Refuses sizes that do not go into one another.

    Raises:
      ValueError: `by` does not divide `value`.
    """
    if by < 1 or value % by:
        raise ValueError(f"received {name}={value}, {by_name}={by}; expected {by_name} to divide {name}.")
