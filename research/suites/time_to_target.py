"""How soon a run had what it found."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable

from tfplace.comparison.case_results import CaseResults
from tfplace.comparison.cells import Run


def evaluations_until(run: Run, step_s: float) -> float:
    """After how many evaluations a run had a placement of at most so many seconds; infinite if it never had.

    At the latest: a run's trail leaves out improvements that are small against the last it has (`Run.stride`), and one
    of these may have been enough; see `earliest_until`.
    """
    return next((evaluations for evaluations, _, found_s, _ in run.trail if found_s <= step_s), math.inf)


def earliest_until(run: Run, step_s: float) -> float:
    """After how many evaluations a run can have had it at the earliest, for all that its trail tells.

    What is left out between two of a trail is slower than the second, and faster than the first by less than the
    stride. Nothing is left out after the last.
    """
    for (before, _, slower_s, _), (evaluations, _, found_s, _) in itertools.pairwise(run.trail):
        if found_s <= step_s < slower_s:
            left_out = max(slower_s * (1 - run.stride), found_s) < step_s
            return min(before + 1, evaluations) if left_out else evaluations
    return evaluations_until(run, step_s)


def processor_s(run: Run, evaluations: float) -> float:
    """The processor seconds of a run until so many evaluations, each of which is taken to need the same."""
    return evaluations * run.cpu_s / run.evaluations if run.evaluations else evaluations


def processor_s_until(run: Run, step_s: float) -> float:
    """`evaluations_until` in processor seconds."""
    return processor_s(run, evaluations_until(run, step_s))


def earliest_s_until(run: Run, step_s: float) -> float:
    """`earliest_until` in processor seconds."""
    return processor_s(run, earliest_until(run, step_s))


def median_until(
    row: CaseResults, placer: str, step_s: float, until: Callable[[Run, float], float] = evaluations_until
) -> float:
    """Median over the seeds that could run, NaN if there is none; those that never had it count as infinite.

    Args:
      row: the case.
      placer: whose runs.
      step_s: what is to be had.
      until: one of the above.
    """
    return statistics.median([until(run, step_s) for run in row.ran(placer)] or [math.nan])


def best_within_s(run: Run, ran_s: float) -> float:
    """The step seconds a run had found when what it had tried would have taken so long to run; infinite if none.

    Each placement that was tried counts with one step; how many are run to measure it is a factor that falls out. What
    the trail leaves out (`Run.stride`) may have been shorter by less than the stride.
    """
    found = [step_s for (_, _, step_s, _), spent in zip(run.trail, run.ran_s, strict=False) if spent <= ran_s]
    return min(found, default=math.inf)
