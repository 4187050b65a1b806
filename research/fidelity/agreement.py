"""How well one evaluator's step times agree with another's over the same placements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from tfplace.errors import InputError


@dataclass(frozen=True)
class Agreement:
    """Agreement of predicted with true step times, both as ratios to one reference placement.

    Attributes:
      placements: how many were compared.
      spearman: rank correlation (Spearman 1904); NaN if either side is all the same.
      kendall: tau-b (Kendall 1945).
      median_error: median of |predicted / true - 1|.
      p90_error: its 90th percentile.
      bias: median of predicted / true - 1; below 0 where the prediction is optimistic.
      regret: how much slower the placement predicted best truly is than the truly best one, as a fraction.
    """

    placements: int
    spearman: float
    kendall: float
    median_error: float
    p90_error: float
    bias: float
    regret: float


def agreement(predicted: ArrayLike, true: ArrayLike) -> Agreement:
    """Compares [N] predicted with [N] true step times, or ratios, of the same placements.

    Raises:
      InputError: other lengths, fewer than 3 placements, or times that are not finite and above 0.
    """
    p, t = np.asarray(predicted, float), np.asarray(true, float)
    if p.shape != t.shape or p.ndim != 1 or len(p) < 3:
        raise InputError(f"step times of shapes {p.shape} and {t.shape}", "two lists of one length, of at least 3")
    if not (np.all(np.isfinite(p)) and np.all(np.isfinite(t)) and np.all(p > 0) and np.all(t > 0)):
        raise InputError("step times that are not finite and above 0", "placements that ran", "Leave failed ones out.")
    error = p / t - 1
    return Agreement(
        placements=len(p),
        spearman=rank_correlation(p, t),
        kendall=float(stats.kendalltau(p, t).statistic) if _varies(p, t) else np.nan,
        median_error=float(np.median(np.abs(error))),
        p90_error=float(np.percentile(np.abs(error), 90)),
        bias=float(np.median(error)),
        regret=float(t[p.argmin()] / t.min() - 1),
    )


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation of two lists; NaN if either is all the same."""
    return float(stats.spearmanr(a, b).statistic) if _varies(a, b) else np.nan


def _varies(a: ArrayLike, b: ArrayLike) -> bool:
    return bool(np.ptp(np.asarray(a)) > 0 and np.ptp(np.asarray(b)) > 0)
