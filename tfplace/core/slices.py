"""Slices: how a step was split along its batch, and which of its numbers that changes."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.core.arrays import IntArray, freeze
from tfplace.errors import GraphError

STATISTICS = "statistics"
DRAWS = "draws"

_WORDS = {
    STATISTICS: "BatchNorm statistics are per slice, as under data parallelism",
    DRAWS: "each slice draws its own random numbers",
}


@dataclass(frozen=True)
class Difference:
    """Ops by which a split step has other numbers than the unsplit one.

    Attributes:
      kind: why: "statistics" of each slice instead of the batch, or "draws" of other random numbers.
      ops: names in the unsplit step: scopes of the layers for statistics.
    """

    kind: str
    ops: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(self.ops[:3]) + (f" and {len(self.ops) - 3} more" if len(self.ops) > 3 else "")
        return f"{_WORDS[self.kind]} ({named})"


@dataclass(frozen=True, eq=False)
class Slices:
    """A step in several slices of its batch.

    Attributes:
      sizes: [K] examples of each slice.
      slice_of: [V] the slice of each op, -1 for ops that stand once.
      original: [V] the op of the unsplit step that each op copies, or whose result it puts together or divides.
      gathered: ops of the unsplit step that mix examples in a way that slices cannot share: they stand once and are
        given the rows of all slices.
      differences: what has other numbers than in the unsplit step; all else is the same up to the order of sums.
    """

    sizes: tuple[int, ...]
    slice_of: IntArray
    original: tuple[str, ...]
    gathered: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()

    def __post_init__(self) -> None:
        if len(self.slice_of) != len(self.original):
            raise GraphError(f"slices of {len(self.slice_of)} ops that copy {len(self.original)}", "one for each op")
        if self.slice_of.size and not -1 <= self.slice_of.min() <= self.slice_of.max() < len(self.sizes):
            raise GraphError("an op of a slice that there is not", f"-1 to {len(self.sizes) - 1}")
        freeze(self.slice_of)

    @property
    def verdict(self) -> str:
        """What a split step's numbers are beside the unsplit step's, for people."""
        if not self.differences:
            return "same numbers up to summation order"
        return "differs: " + "; ".join(map(str, self.differences))
