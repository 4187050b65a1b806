"""MoveSelector: which of several moves are tried."""

from __future__ import annotations

from typing import Protocol

from tfplace.core.arrays import FloatArray, LongArray


class MoveSelector(Protocol):
    """Chooses by what is known of moves beforehand.

    Attributes:
      among: moves drawn for each that is tried.
    """

    among: int

    def pick(self, move_features: FloatArray, count: int) -> LongArray:
        """[K] rows, at most so many, best first.

        Args:
          move_features: [N, F] `tfplace.local_search.move_features_kernel.Feature` of each move.
          count: moves that are to be tried.
        """

    def tell(self, gains: FloatArray) -> None:
        """What became of the moves picked last, or of the first of them.

        Args:
          gains: [K] part by which the step is shorter, minus infinity where it was given up; what does not fit counts
            as longer.
        """
