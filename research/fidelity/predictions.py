"""How well simulated step times predict measured ones: one problem, many placements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.fidelity.agreement import Agreement, agreement, rank_correlation
from tfplace.core.arrays import IntArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Samples, StepCost
from tfplace.errors import InputError


@dataclass(frozen=True)
class Row:
    """One placement.

    Attributes:
      name: what kind of placement it is.
      simulated: what the simulator says.
      measured: what was measured; may have failed.
    """

    name: str
    simulated: StepCost
    measured: StepCost

    @property
    def samples(self) -> Samples | None:
        """What was measured; None if it failed."""
        return self.measured.samples


@dataclass(frozen=True)
class Fidelity:
    """Simulated against measured step times of one problem.

    Attributes:
      graph: the graph's name.
      reference: the placement to which all others are compared, by name.
      rows: one per placement.
    """

    graph: str
    reference: str
    rows: tuple[Row, ...]

    @property
    def ran(self) -> list[Row]:
        """Rows of placements that did not fail."""
        return [row for row in self.rows if row.samples is not None]

    def ratios(self) -> tuple[list[float], list[float]]:
        """Simulated and measured step times over the reference's, of the placements that ran."""
        base = next(row for row in self.rows if row.name == self.reference).simulated.step_s
        simulated = [row.simulated.step_s / base for row in self.ran]
        measured = [_ratio(row.samples) for row in self.ran if row.samples is not None]
        return simulated, measured

    @property
    def agreement(self) -> Agreement:
        """Of the simulated with the measured ratios."""
        return agreement(*self.ratios())

    def under(self, simulator: Evaluator, placements: Mapping[str, IntArray]) -> Fidelity:
        """The same measurements against another simulator's predictions."""
        rows = [Row(row.name, simulator(placements[row.name]), row.measured) for row in self.rows]
        return Fidelity(self.graph, self.reference, tuple(rows))

    @property
    def split_half(self) -> float:
        """Rank correlation of the measurement with itself: its even against its odd steps."""
        halves = [row.samples.halves for row in self.ran if row.samples is not None]
        return rank_correlation([a for a, _ in halves], [b for _, b in halves])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        simulated, measured = self.ratios()
        return {
            "graph": self.graph,
            "reference": self.reference,
            "agreement": dataclasses.asdict(self.agreement),
            "split_half": self.split_half,
            "placements": [
                {
                    "name": row.name,
                    "simulated_ratio": s,
                    "measured_ratio": m,
                    "simulated_s": row.simulated.step_s,
                    "measured_s": row.samples.median_s,
                    "spread_s": row.samples.spread_s,
                    "halves": row.samples.halves,
                    "rejected": row.samples.rejected,
                    "moved_bytes": row.simulated.moved_bytes,
                }
                for row, s, m in zip(self.ran, simulated, measured, strict=True)
                if row.samples is not None
            ],
            "failed": {row.name: str(row.measured.failure) for row in self.rows if row.samples is None},
        }


def _ratio(samples: Samples) -> float:
    if samples.ratio is None:
        raise InputError("steps measured without a reference", "an evaluator that measures in turn with a reference")
    return samples.ratio


def fidelity(
    problem: Problem,
    simulator: Evaluator,
    evaluator: Evaluator,
    placements: Mapping[str, IntArray],
    *,
    reference: str,
    progress: Callable[[int, int], None] | None = None,
) -> Fidelity:
    """Simulates and measures the same placements.

    They are measured in an order that has nothing to do with their names, so that a drift of the machine does not look
    like a difference between kinds of placements.

    Args:
      problem: what is placed.
      simulator: the evaluator under test.
      evaluator: measures, in turn with the reference placement.
      placements: name -> [U] devices; see `tfplace.testing.variety`.
      reference: name of the placement in `placements` that `evaluator` has as its reference.
      progress: called with the number of placements done and their total.
    """
    names = list(placements)
    costs: dict[str, StepCost] = {}
    for i in np.random.default_rng(0).permutation(len(names)):
        costs[names[i]] = evaluator(placements[names[i]])
        if progress is not None:
            progress(len(costs), len(names))
    rows = tuple(Row(name, simulator(placements[name]), costs[name]) for name in names)
    return Fidelity(problem.graph.name, reference, rows)
