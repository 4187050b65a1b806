"""How long a search may go on: seconds, or a number of simulated placements."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import SupportsIndex

from tfplace.errors import InputError
from tfplace.units import parse_seconds

_NUMBER = re.compile(r"\s*\+?((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*")
_EVALUATIONS = re.compile(r"\s*(\d+)\s*(?:evaluations?|evals?|placements?)\s*")

_MOST_EVALUATIONS = 2**62
"""A search counts them in 64 bits."""


@dataclass(frozen=True)
class Budget:
    """Exactly one of the two is set.

    Attributes:
      seconds: wall-clock seconds, or None.
      evaluations: simulated placements, or None; with it a search is deterministic.
    """

    seconds: float | None = None
    evaluations: int | None = None

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.evaluations is None):
            raise InputError(f"{self.seconds} seconds and {self.evaluations} evaluations", "one of the two")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"a budget of {self.seconds} seconds", "more than 0 seconds")
        if self.evaluations is not None and not 1 <= self.evaluations <= _MOST_EVALUATIONS:
            count = self.evaluations if self.evaluations < 1 else f"more than {_MOST_EVALUATIONS}"
            raise InputError(f"a budget of {count} evaluations", f"at least 1 evaluation, at most {_MOST_EVALUATIONS}")

    @classmethod
    def parse(cls, value: str | float | SupportsIndex | Budget) -> Budget:
        """A budget from "30s", "2min", 30.0 (seconds), 500 (evaluations; any integer) or "500 evaluations".

        A number in a text has a unit: 500 would be evaluations in Python, and seconds to whoever knows "30s".

        >>> Budget.parse("2min"), Budget.parse(500)
        (Budget(seconds=120.0, evaluations=None), Budget(seconds=None, evaluations=500))
        """
        if isinstance(value, Budget):
            return value
        if isinstance(value, str):
            return cls._read(value)
        if isinstance(value, float | bool):
            return cls(seconds=parse_seconds(value))
        try:
            return cls(evaluations=operator.index(value))
        except TypeError as error:
            raise InputError(repr(value), 'seconds (30.0, "30s") or evaluations (500, "500 evaluations")') from error

    @classmethod
    def _read(cls, text: str) -> Budget:
        if match := _EVALUATIONS.fullmatch(text):
            return cls(evaluations=int(match[1].lstrip("0")[:20] or 0))  # of more digits, the first say enough
        if match := _NUMBER.fullmatch(text):
            number = match[1]
            expected = f'"{number}s" or "{number} evaluations"' if number.isdecimal() else f'"{number}s"'
            raise InputError(repr(text), expected, "A budget is a time, or a number of simulated placements.")
        try:
            seconds = parse_seconds(text)
        except InputError as error:
            raise InputError(repr(text), 'a time such as "30s" or "2min", or "500 evaluations"', error.hint) from error
        return cls(seconds=seconds)

    def __str__(self) -> str:
        return f"{self.seconds:g} s" if self.seconds is not None else f"{self.evaluations} evaluations"
