"""A step that is read in several numbers of slices, and what was traced of it for that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tfplace.core.graph import OpGraph


@dataclass(frozen=True, eq=False)
class WholeStep:
    """A step that was read without slices; as long as this is there, it is not traced again for the same sizes.

    Attributes:
      graph: of the step.
      traced: examples -> the flattened function of the step with so many.
    """

    graph: OpGraph
    traced: dict[int, Any] = field(default_factory=dict)
