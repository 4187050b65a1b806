"""PlanDiff: what a second plan of a step has otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.formatting import format_seconds


@dataclass(frozen=True)
class RowDiff:
    """A way that two plans have otherwise.

    Attributes:
      name: of the rows.
      before_s: seconds of the step in the first plan; None where it lacks the row.
      after_s: the same of the second.
      fits: whether it fits, before and after.
      moved: ops on other devices, where both are placements of one graph.
    """

    name: str
    before_s: float | None
    after_s: float | None
    fits: tuple[bool, bool] = (True, True)
    moved: int = 0

    def __str__(self) -> str:
        told = [
            "does not fit" if not fits else format_seconds(seconds)
            for seconds, fits in zip((self.before_s, self.after_s), self.fits, strict=True)
            if seconds is not None
        ]
        if self.before_s is None or self.after_s is None:
            return f"{self.name}: {'new' if self.before_s is None else 'gone'}, {told[0]}"
        where = f", {self.moved} ops elsewhere" if self.moved else ""
        return f"{self.name}: {' -> '.join(told)}{where}"


@dataclass(frozen=True)
class PlanDiff:
    """What a second plan of a step has otherwise.

    Attributes:
      chosen: names of the chosen rows, before and after; None where nothing may be taken.
      chosen_s: seconds of their steps.
      rows: those that differ, in the order of the second plan, those that only the first has last.
    """

    chosen: tuple[str | None, str | None]
    chosen_s: tuple[float | None, float | None]
    rows: tuple[RowDiff, ...]

    def __str__(self) -> str:
        if not self.rows and self.chosen[0] == self.chosen[1]:
            return "the same rows"
        told = [
            "nothing" if name is None or s is None else f"{name}, {format_seconds(s)}"
            for name, s in zip(self.chosen, self.chosen_s, strict=True)
        ]
        first = f"chosen: {told[0]}" + (f" -> {told[1]}" if told[0] != told[1] else ", as before")
        return "\n".join([first, *map(str, self.rows)])
