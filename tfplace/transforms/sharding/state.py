"""How a tensor is divided among the slices of a batch."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class Kind(enum.Enum):
    """What each slice has of a tensor."""

    WHOLE = "whole"
    """The same tensor, all of it."""
    ROWS = "rows"
    """Its own rows along one axis."""
    PARTIAL = "partial"
    """A term: the tensor is the sum of all slices', or their mean weighted by examples."""
    LOCAL = "local"
    """What it would be if the slice were the batch, such as a mean over the slice."""
    SIZE = "size"
    """Sizes of the slice where the whole has those of the batch; for shapes alone, not for arithmetic with values."""


@dataclass(frozen=True)
class Sharding:
    """How a tensor is divided among slices; GSPMD (Xu et al. 2021, section 3) with one mesh axis, the batch.

    A TensorList is divided as its elements are.

    Attributes:
      kind: what each slice has.
      axis: ROWS: the axis whose rows are divided.
      outer: ROWS: the axis counts `outer` groups, each of which has rows of every slice: 1 where a slice's rows stand
        together, the number of steps where a time-major tensor's first two axes were made one.
      mean: PARTIAL: the whole is the mean of slices weighted by their examples, and not their sum.
      zero: WHOLE: it holds zeros, or nothing yet (a new TensorList), so that terms and rows may be put to it.
      extensive: LOCAL, ROWS: a sum over the slice that stands for one over the batch, and is not yet divided by the
        number of examples; the whole of a LOCAL one, such as the gradient of a scale, is the sum of all slices'.
      divides: LOCAL: a constant that divides by the slice's number of examples.
    """

    kind: Kind
    axis: int = 0
    outer: int = 1
    mean: bool = False
    zero: bool = False
    extensive: bool = False
    divides: bool = False

    def at(self, axis: int, outer: int | None = None) -> Sharding:
        """The same rows along another axis."""
        return replace(self, axis=axis, outer=self.outer if outer is None else outer)

    @property
    def is_whole(self) -> bool:
        """Whether every slice has all of it."""
        return self.kind is Kind.WHOLE

    @property
    def is_rows(self) -> bool:
        """Whether each slice has its rows."""
        return self.kind is Kind.ROWS

    @property
    def is_partial(self) -> bool:
        """Whether each slice has a term."""
        return self.kind is Kind.PARTIAL


WHOLE = Sharding(Kind.WHOLE)
ZERO = Sharding(Kind.WHOLE, zero=True)
SIZE = Sharding(Kind.SIZE)
LOCAL = Sharding(Kind.LOCAL)
COUNT = Sharding(Kind.LOCAL, divides=True)
SUM = Sharding(Kind.PARTIAL)
MEAN = Sharding(Kind.PARTIAL, mean=True)


def rows(axis: int, outer: int = 1, *, extensive: bool = False) -> Sharding:
    """Rows along `axis`."""
    return Sharding(Kind.ROWS, axis, outer, extensive=extensive)
