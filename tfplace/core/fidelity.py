"""How far off simulated steps are, by where the costs of their ops come from."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.core.compilation import NONE, XLA
from tfplace.core.problem import Problem

MEASURED_ON = "measured on "
"""How the source of a topology begins whose rates and links were measured."""

PROFILED, CALIBRATED, DATA_SHEETS = "profiled", "calibrated", "data sheets"
"""Costs: of ops that were measured; of a roofline with measured rates; of one with rates from data sheets."""

_MOSTLY = 0.9
"""Part of the ops' seconds that has to be profiled for a step to count as such."""


@dataclass(frozen=True)
class ErrorBand:
    """Errors of simulated steps, `|simulated / measured - 1|`.

    Attributes:
      costs: `PROFILED` or `CALIBRATED`.
      median: half of the steps are off by less.
      most: nine of ten are off by less.
      steps: how many steps were simulated and measured.
      on: what they ran on.
    """

    costs: str
    median: float
    most: float
    steps: int
    on: str

    def __str__(self) -> str:
        return (
            f"half of such steps are off by less than {100 * self.median:.0f} %, nine of ten by less than "
            f"{100 * self.most:.0f} % ({self.costs} costs; {self.steps} steps on {self.on})"
        )


UNKNOWN = "unknown, as rates come from data sheets; measure them with tfplace calibrate and tfplace profile"
"""Said of a step without a band."""

_TWO, _ONE = "two CPU workers of a core each", "one CPU core"

BANDS = {
    (PROFILED, NONE): ErrorBand(PROFILED, 0.063, 0.248, 126, _TWO),
    (PROFILED, XLA): ErrorBand(PROFILED, 0.150, 0.287, 85, _TWO),
    (CALIBRATED, NONE): ErrorBand(CALIBRATED, 0.241, 0.357, 5, _ONE),
    (CALIBRATED, XLA): ErrorBand(CALIBRATED, 0.399, 0.529, 5, _ONE),
}
"""Of profiled costs from research/data/fidelity.json and fidelity_compiled.json (docs/research/fidelity.md), all
placements of all graphs together; of calibrated ones from compiled_costs.json (docs/research/compiled_steps.md)."""


def error_band(problem: Problem) -> ErrorBand | None:
    """What is known of steps with costs like a problem's; None if they are from data sheets."""
    seconds = problem.costs.compute_s.mean(axis=1)
    profiled = sum(s for s, said in zip(seconds.tolist(), problem.costs.provenance, strict=True) if _is_profiled(said))
    if profiled > 0 and profiled >= _MOSTLY * float(seconds.sum()):
        return BANDS[PROFILED, problem.compile]
    if problem.topology.source.startswith(MEASURED_ON):
        return BANDS[CALIBRATED, problem.compile]
    return None


def _is_profiled(provenance: str) -> bool:
    return provenance.startswith("profiled") and "analytic" not in provenance
