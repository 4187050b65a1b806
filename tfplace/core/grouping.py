"""Grouping: which ops are placed together."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tfplace.core.arrays import IntArray, freeze
from tfplace.errors import GraphError


@dataclass(frozen=True, eq=False)
class Grouping:
    """A map from ops to units, for each of which a placer chooses one device.

    Attributes:
      unit_of: [V] the unit of each op, or -1 for a replicable constant, which follows its consumers.
      num_units: U. Every unit 0..U-1 has at least one op. Units are numbered in the order of their first ops.
    """

    unit_of: IntArray
    num_units: int

    def __post_init__(self) -> None:
        used = np.unique(self.unit_of[self.unit_of >= 0])
        if len(used) != self.num_units or (len(used) and used[-1] != self.num_units - 1):
            raise GraphError(f"{len(used)} used units of {self.num_units}", "units numbered 0..U-1 without gaps")
        first = np.unique(self.unit_of[self.unit_of >= 0], return_index=True)[1]
        if np.any(np.diff(first) < 0):
            raise GraphError("units in another order than their first ops", "units numbered by their first op")
        freeze(self.unit_of)

    @cached_property
    def members(self) -> tuple[IntArray, ...]:
        """[U] indices of the ops of each unit, ascending."""
        order = np.argsort(self.unit_of, kind="stable").astype(np.int32)
        bounds = np.searchsorted(self.unit_of[order], np.arange(self.num_units + 1))
        return tuple(order[a:b] for a, b in itertools.pairwise(bounds))
