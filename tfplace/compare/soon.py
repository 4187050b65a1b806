"""How soon a run had what it found."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from tfplace.compare.cells import Run
from tfplace.compare.standings import Standing


def evaluations_until(run: Run, step_s: float) -> float:
    """After how many evaluations a run had a placement of at most so many seconds; infinite if it never had.

    Improvements of less than one percent are not in a run's trail, so it may have been a little earlier.
    """
    return next((evaluations for evaluations, _, found_s, _ in run.trail if found_s <= step_s), math.inf)


def processor_s_until(run: Run, step_s: float) -> float:
    """The same in processor seconds, of which each evaluation of a run is taken to need the same."""
    return evaluations_until(run, step_s) * run.cpu_s / run.evaluations


def median_until(
    row: Standing, placer: str, step_s: float, until: Callable[[Run, float], float] = evaluations_until
) -> float:
    """Median over the seeds; those that never had it count as infinite.

    Args:
      row: the case.
      placer: whose runs.
      step_s: what is to be had.
      until: one of the above.
    """
    return statistics.median(until(run, step_s) for run in row.runs[placer])


def best_within_s(run: Run, ran_s: float) -> float:
    """The step seconds a run had found when what it had tried would have taken so long to run; infinite if none.

    Each placement that was tried counts with one step; how many are run to measure it is a factor that falls out.
    """
    found = [step_s for (_, _, step_s, _), spent in zip(run.trail, run.ran_s, strict=False) if spent <= ran_s]
    return min(found, default=math.inf)
