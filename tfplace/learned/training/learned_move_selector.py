"""LearnedMoveSelector: which moves are worth a try, as it was learned on other graphs."""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import functools
from collections.abc import Sequence

import numba as nb
import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.errors import InputError
from tfplace.learned.training.pretrained import Pretrained
from tfplace.local_search.move_features_kernel import Feature

POLICY = "moves"
"""Whose weights it has."""

AMONG = 8
_STRETCH = 50.0
_GAIN = 1e3


class LearnedMoveSelector:
    """Tries the moves from which a network with one layer expects most.

    It was taught the square root of what moves make a step shorter by, 0 if that is nothing, as the largest gains would
    hide all others.

    Args:
      values: [F] mean and [F] scale of `stretched` features, [F, H] and [H] weights and biases of the layer, [H] and
        [1] those of the end.
      among: moves drawn for each that is tried.

    Raises:
      InputError: weights for other features.
    """

    def __init__(self, values: Sequence[NDArray[np.float32]], among: int = AMONG) -> None:
        shapes = [value.shape for value in values]
        hidden = shapes[3] if len(shapes) > 3 else ("H",)
        expected = [(len(Feature),)] * 2 + [(len(Feature), *hidden), hidden, hidden, (1,)]
        if shapes != expected:
            raise InputError(f"weights of {POLICY} of shapes {shapes}", f"shapes {expected}")
        self.among = among
        self._values = [np.asarray(value, np.float64) for value in values]

    @classmethod
    @functools.cache
    def shipped(cls) -> LearnedMoveSelector:
        """With the weights of the package."""
        return cls(Pretrained.shipped(POLICY).values)

    def expected(self, move_features: FloatArray) -> FloatArray:
        """[N] what is expected of moves with features [N, F]; see `lesson`."""
        mean, scale, weights, biases, end_weights, end_bias = self._values
        inputs = (stretched(move_features) - mean) / scale
        found: FloatArray = _expect(inputs, weights, biases, end_weights, float(end_bias[0]))
        return found

    def pick(self, move_features: FloatArray, count: int) -> LongArray:
        """See `tfplace.local_search.move_selector.MoveSelector`."""
        return np.argsort(-self.expected(move_features), kind="stable")[:count]

    def tell(self, gains: FloatArray) -> None:
        """It has learned beforehand."""


def stretched(move_features: FloatArray) -> FloatArray:
    """Features of which small ones tell as much as large ones: their logarithms, on either side of 0."""
    found: FloatArray = np.sign(move_features) * np.log1p(_STRETCH * np.abs(move_features))
    return found


def lesson(gains: FloatArray) -> FloatArray:
    """What is to be expected, of parts by which steps are shorter."""
    return np.sqrt(_GAIN * np.maximum(gains, 0.0))


@nb.njit(cache=True, error_model="numpy", nogil=True)
def _expect(
    inputs: FloatArray, weights: FloatArray, biases: FloatArray, end_weights: FloatArray, end_bias: float
) -> FloatArray:
    """Row by row; of a product of matrices the last bit would depend on the row and on the machine."""
    out = np.full(len(inputs), end_bias)
    for row in range(len(inputs)):
        for h in range(len(biases)):
            into = biases[h]
            for f in range(inputs.shape[1]):
                into += inputs[row, f] * weights[f, h]
            out[row] += max(into, 0.0) * end_weights[h]
    return out
