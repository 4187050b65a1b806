"""How long a search may go on: seconds, or a number of simulated placements."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfplace.errors import InputError
from tfplace.units import parse_seconds

_EVALUATIONS = re.compile(r"\s*(\d+)\s*(?:evaluations?|evals?|placements?)\s*")


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
        if self.evaluations is not None and self.evaluations < 1:
            raise InputError(f"a budget of {self.evaluations} evaluations", "at least 1 evaluation")

    @classmethod
    def parse(cls, value: str | float | int | Budget) -> Budget:
        """A budget from "30s", "2min", 30.0 (seconds), 500 (evaluations) or "500 evaluations".

        >>> Budget.parse("2min"), Budget.parse(500)
        (Budget(seconds=120.0, evaluations=None), Budget(seconds=None, evaluations=500))
        """
        if isinstance(value, Budget):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(evaluations=value)
        if isinstance(value, str) and (match := _EVALUATIONS.fullmatch(value)):
            return cls(evaluations=int(match[1]))
        return cls(seconds=parse_seconds(value))

    def __str__(self) -> str:
        return f"{self.seconds:g} s" if self.seconds is not None else f"{self.evaluations} evaluations"
