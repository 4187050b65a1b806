"""PlanDiff: the differences between two plans of a step."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.formatting import format_seconds


@dataclass(frozen=True)
class RowDiff:
    """A row that differs between two plans.

    Attributes:
      name: name of the row.
      before_s: seconds of the step in the first plan; None if that plan lacks the row.
      after_s: seconds of the step in the second plan; None if that plan lacks the row.
      fits: whether the row fits in the first and in the second plan.
      moved: number of ops on other devices, if both rows are placements of the same graph.
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
    """The differences between two plans of a step.

    Attributes:
      chosen: names of the chosen rows in the first and in the second plan; None if no row can be chosen.
      chosen_s: seconds of their steps.
      rows: the rows that differ, in the order of the second plan. Rows that only the first plan has come last.
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
