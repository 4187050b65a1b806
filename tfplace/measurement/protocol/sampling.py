"""The measuring protocol: warm up, take turns with a reference, leave out what was disturbed.

Published protocols for the step time of one placement: 5 steps of warm-up, then 10 measured (Baechi, Jeon et al. 2020,
its code); 10 steps, of which the last 5 are averaged (Placeto, Addanki et al. 2019, its code). Here: 5 and 10, like the
first, with these departures. The median stands for the steps instead of their mean, since steps can be disturbed but
not hurried. Each step is followed by one of a reference placement, and placements are compared by the ratio of the two
medians: machines drift by more than good placements differ. Steps during which something else used the processor do not
count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tfplace.core.stepcost import Samples
from tfplace.errors import InputError

WARMUP, REPEATS = 5, 10
TOLERANCE = 0.05
ATTEMPTS = 3
"""Steps tried at most, in multiples of those wanted."""

Step = Callable[[], float]
"""Runs a step and returns its seconds."""


@dataclass(frozen=True)
class _Turn:
    step_s: float
    reference_s: float
    disturbance: float


def take_samples(
    run_candidate: Step,
    run_reference: Step | None = None,
    disturbance: Callable[[], float] | None = None,
    *,
    warmup: int = WARMUP,
    repeats: int = REPEATS,
    tolerance: float = TOLERANCE,
) -> Samples:
    """Measures a step, in turns with a reference.

    A turn in which either step was disturbed is left out and made up for, up to `ATTEMPTS * repeats` turns in all. If
    there are too few quiet turns by then, the least disturbed of the others count too: `Samples.disturbed` says how
    many.

    Args:
      run_candidate: runs a step and returns its seconds.
      run_reference: the same for the reference; None for no reference.
      disturbance: the share of a core that others used since it was last called, such as a `ProcessorWatch`; None if
        nothing can tell.
      warmup: turns run first and dropped.
      repeats: turns that count.
      tolerance: disturbance up to which a step counts.

    Raises:
      InputError: no repeats, or a negative number of warm-up steps.
    """
    if repeats < 1 or warmup < 0:
        raise InputError(f"repeats={repeats}, warmup={warmup}", "repeats of at least 1, and warmup of at least 0")
    for _ in range(warmup):
        _turn(run_candidate, run_reference, None)
    turns: list[_Turn] = []
    quiet = 0
    while quiet < repeats and len(turns) < ATTEMPTS * repeats:
        turns.append(_turn(run_candidate, run_reference, disturbance))
        quiet += turns[-1].disturbance <= tolerance
    kept = _least_disturbed(turns, repeats, tolerance)
    return Samples(
        step_s=np.array([turn.step_s for turn in kept]),
        reference_s=np.array([turn.reference_s for turn in kept] if run_reference else []),
        rejected=len(turns) - len(kept),
        warmup=warmup,
        disturbed=sum(turn.disturbance > tolerance for turn in kept),
    )


def _turn(run_candidate: Step, run_reference: Step | None, disturbance: Callable[[], float] | None) -> _Turn:
    if disturbance is None:
        return _Turn(run_candidate(), run_reference() if run_reference else 0.0, 0.0)
    disturbance()
    step_s = run_candidate()
    worst = disturbance()
    if run_reference is None:
        return _Turn(step_s, 0.0, worst)
    reference_s = run_reference()
    return _Turn(step_s, reference_s, max(worst, disturbance()))


def _least_disturbed(turns: Sequence[_Turn], count: int, tolerance: float) -> list[_Turn]:
    """`count` turns in the order they ran: all quiet ones, then those disturbed least."""
    order = sorted(range(len(turns)), key=lambda i: (max(turns[i].disturbance, tolerance), i))
    return [turns[i] for i in sorted(order[:count])]


@dataclass(frozen=True)
class SplitHalf:
    """How well a measurement of several placements agrees with itself: even steps against odd ones.

    Attributes:
      spearman: rank correlation of the halves over the placements; NaN for fewer than two.
      difference: median of the relative difference between the halves.
      placements: how many were compared.
    """

    spearman: float
    difference: float
    placements: int

    def __str__(self) -> str:
        return (
            f"split halves of {self.placements} placements: Spearman {self.spearman:.2f}, "
            f"median difference {self.difference:.1%}"
        )


def split_half(samples: Sequence[Samples]) -> SplitHalf:
    """Agreement of the even and the odd steps of many placements.

    No prediction can be expected to agree better with a measurement than the measurement does with itself. Halves have
    half the steps, so that the whole is somewhat better than this (Spearman and Brown, 1910, give 2r / (1 + r) for
    correlations; not applied here).

    Args:
      samples: one per placement; those of a single step have no halves and do not count.

    Raises:
      InputError: none has two steps.
    """
    halves = [s.halves for s in samples if len(s.step_s) > 1]
    if not halves:
        raise InputError(f"samples of {len(samples)} placements", "at least one with two steps or more")
    even, odd = np.array(halves).T
    difference = float(np.median(np.abs(even - odd) / ((even + odd) / 2)))
    varies = np.ptp(even) > 0 and np.ptp(odd) > 0
    correlation = float(stats.spearmanr(even, odd).statistic) if varies else float("nan")
    return SplitHalf(correlation, difference, len(halves))
