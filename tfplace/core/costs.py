"""CostTable: how long each op takes on each device, and where each number comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tfplace.core.arrays import FloatArray, digest, freeze
from tfplace.errors import GraphError

_MOST_S = 1e50
"""With more, sums of a whole graph's seconds, and their products, may be infinite."""


@dataclass(frozen=True, eq=False, repr=False)
class CostTable:
    """The seconds of each op on each device, in one step.

    Attributes:
      compute_s: [V, D] seconds that all executions of the op in one step take on the device, overhead included. It is
        finite even if the op has no kernel there; `Problem.allowed` says where an op may go.
      provenance: [V] where each op's number comes from, such as "analytic:conv" or "profiled".

    Raises:
      GraphError: wrong shapes, or seconds that are negative, not finite, or above 1e50.
    """

    compute_s: FloatArray
    provenance: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.compute_s.ndim != 2 or len(self.compute_s) != len(self.provenance):
            raise GraphError(f"compute_s of shape {self.compute_s.shape}", f"[{len(self.provenance)}, D]")
        if not np.all((self.compute_s >= 0) & (self.compute_s <= _MOST_S)):  # no number neither
            raise GraphError(
                "negative, non-finite or too large op seconds", f"finite seconds of at least 0, at most {_MOST_S:g}"
            )
        object.__setattr__(self, "compute_s", freeze(np.ascontiguousarray(self.compute_s)))  # kernels take no other

    def __repr__(self) -> str:
        ops, devices = self.compute_s.shape
        return f"CostTable({ops} ops, {devices} devices)"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all seconds."""
        return digest([self.compute_s])
