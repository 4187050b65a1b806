"""The cross-entropy method's step for categorical distributions."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.errors import InputError


def fit_elite(
    probability: FloatArray, elite: IntArray, blind: FloatArray, smoothing: float = 1.0, mixing: float = 0.0
) -> FloatArray:
    """[G, D] the next distribution of a product of categorical ones.

    The distribution with the least cross entropy to the elite is, for each group, the frequency of each device among
    them (Post, equation 10). With `smoothing` 1 that and `mixing` of the blind draw is Post's update; with `mixing` 0
    it is Rubinstein's, who smooths.

    Args:
      probability: [G, D] the present one.
      elite: [K, G] devices of the best samples, at least one.
      blind: [G, D] mixed in, so that nothing allowed becomes impossible.
      smoothing: from 0, which keeps the present one, to 1.
      mixing: from 0 to 1.

    Raises:
      InputError: arrays of other shapes, or numbers that are no fractions.
    """
    if probability.ndim != 2 or blind.shape != probability.shape:
        raise InputError(f"distributions of shapes {probability.shape} and {blind.shape}", "two arrays of shape [G, D]")
    if elite.ndim != 2 or not len(elite) or elite.shape[1] != len(probability):
        raise InputError(f"elite of shape {elite.shape}", f"[K, {len(probability)}] with K of at least 1")
    if not (0 <= smoothing <= 1 and 0 <= mixing <= 1):
        raise InputError(f"smoothing {smoothing} and mixing {mixing}", "fractions from 0 to 1")
    frequency = (elite[:, :, None] == np.arange(probability.shape[1])).mean(axis=0)
    fitted = (1 - smoothing) * probability + smoothing * frequency
    return np.asarray((1 - mixing) * fitted + mixing * blind, np.float64)
