"""What policies are trained on, and what they are tried on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfplace.comparison.cells import Case, problem_of
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem


@dataclass(frozen=True)
class Entry:
    """A graph somewhere.

    Attributes:
      path: of the extracted graph.
      case: where.
      family: of graphs that are alike; results are told family by family.
      held_out: whether it is to try policies on, and never learned from.
    """

    path: Path
    case: Case
    family: str
    held_out: bool

    def problem(self) -> Problem:
        """Its problem, with analytic costs."""
        return problem_of(OpGraph.load(self.path), self.case)

    def facts(self) -> dict[str, Any]:
        """Plain data, without where the file is."""
        return asdict(self) | {"path": self.path.name}


def held_out(names: Iterable[str], part: int = 4) -> frozenset[str]:
    """Every `part`-th name in the order of their SHA-256: a split that depends on nothing else."""
    ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    return frozenset(ordered[::part])
