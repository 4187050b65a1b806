"""Slices: how a step is split along its batch, and which numbers that changes."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfplace.core.arrays import IntArray, freeze
from tfplace.errors import GraphError, SplitError

PER_SLICE = "per_slice"
SYNCHRONIZED = "synchronized"
PACKED = "packed_"
"""Prefix of the names of ops that send small vectors of several variables together."""
AUTO = "auto"
"""The number of slices that is best."""
BATCH_NORMS = (PER_SLICE, SYNCHRONIZED)
"""Over which examples a batch normalization takes its statistics: each slice, or the batch."""

STATISTICS = "statistics"
DRAWS = "draws"

_WORDS = {
    STATISTICS: "BatchNorm statistics are per slice, as under data parallelism",
    DRAWS: "each slice draws its own random numbers",
}

_MOST_NAMED = 6
"""Slices whose sizes are all listed in a line for people."""


@dataclass(frozen=True)
class Difference:
    """Ops that make the numbers of a split step differ from those of the unsplit step.

    Attributes:
      kind: "statistics" if each slice has its own statistics, or "draws" if random numbers differ.
      ops: names in the unsplit step; for statistics, scopes of the layers.
    """

    kind: str
    ops: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.kind not in _WORDS:
            raise GraphError(f"a difference of kind {self.kind!r}", f"one of {', '.join(_WORDS)}")

    def __str__(self) -> str:
        named = ", ".join(self.ops[:3]) + (f" and {len(self.ops) - 3} more" if len(self.ops) > 3 else "")
        return f"{_WORDS[self.kind]} ({named})"


@dataclass(frozen=True, eq=False)
class Slices:
    """How a step is split into slices of its batch.

    Attributes:
      sizes: [K] number of examples in each slice.
      slice_of: [V] the slice of each op; -1 for ops that exist once for all slices.
      original: [V] the op of the unsplit step that each op copies, or whose result it joins or divides.
      gathered: ops of the unsplit step that mix examples in a way that slices cannot share. They exist once, and get
        the rows of all slices.
      differences: what makes numbers differ from the unsplit step. All others are the same up to the order of sums.
    """

    sizes: tuple[int, ...]
    slice_of: IntArray
    original: tuple[str, ...]
    gathered: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise GraphError(f"slices of {self.sizes} examples", "one or more slices, each of at least 1 example")
        if len(self.slice_of) != len(self.original):
            raise GraphError(f"slices of {len(self.slice_of)} ops that copy {len(self.original)}", "one for each op")
        if self.slice_of.size and not -1 <= self.slice_of.min() <= self.slice_of.max() < len(self.sizes):
            raise GraphError("an op of an unknown slice", f"slice numbers -1 to {len(self.sizes) - 1}")
        freeze(self.slice_of)

    @property
    def verdict(self) -> str:
        """Whether the numbers equal those of the unsplit step, in words."""
        if not self.differences:
            return "same numbers up to summation order"
        return "differs: " + "; ".join(map(str, self.differences))

    def __str__(self) -> str:
        """One line for people: "4 slices of 8 examples: same numbers up to summation order"."""
        least, most = min(self.sizes), max(self.sizes)
        if least == most:
            each = f"{most} example{'s' if most > 1 else ''}"
        elif len(self.sizes) <= _MOST_NAMED:
            each = f"{', '.join(map(str, self.sizes[:-1]))} and {self.sizes[-1]} examples"
        else:
            each = f"{least} to {most} examples"
        return f"{len(self.sizes)} slice{'s' if len(self.sizes) > 1 else ''} of {each}: {self.verdict}"


def checked_slices(slices: int | str | Sequence[int] | IntArray | None) -> int | tuple[int, ...] | None:
    """How a batch is to be split, as Python's own numbers: how many slices, or examples of each.

    Args:
      slices: what a user gave, also of numpy's integers; None and 1 leave the batch whole.

    Returns:
      None for a whole batch.

    Raises:
      SplitError: it is neither.

    >>> checked_slices(1), checked_slices(4), checked_slices([12, 4])
    (None, 4, (12, 4))
    """
    given = slices.tolist() if isinstance(slices, np.ndarray) and slices.ndim == 1 else slices
    numbers: Sequence[object] = given if isinstance(given, Sequence) else [1 if given is None else given]
    counts = [int(n) for n in numbers if isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 1]
    if not counts or len(counts) < len(numbers):
        raise SplitError(f"slices={reprlib.repr(slices)}", "how many slices, or the examples of each slice")
    if isinstance(given, Sequence):
        return tuple(counts)
    return None if counts == [1] else counts[0]
