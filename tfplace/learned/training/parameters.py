"""What is trained: variables, their optimizer, and both as plain arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from numpy.typing import NDArray


class Parameters:
    """Variables that Adam descends.

    It does so in one row that holds all of them: a dozen ops for each variable would take long to trace.

    Args:
      variables: of one type, always in the same order.
      rate: of Adam at first.
    """

    def __init__(self, variables: Sequence[tf.Variable], rate: float) -> None:
        self.variables = variables
        self._sizes = [math.prod(v.shape) for v in variables]
        self._row = tf.Variable(_row(variables), trainable=False)
        self._rate = tf.Variable(rate, trainable=False)
        self._adam = snt.optimizers.Adam(self._rate)
        self._adam.apply([tf.zeros_like(self._row)], [self._row])  # makes its slots
        self._adam.step.assign(0)

    def descend(self, gradients: Sequence[Any], rate: float, clip: float) -> float:
        """One step of Adam; the norm of the gradients before it is clipped to `clip`.

        None is taken where that is no finite number: parameters that are none would be all that comes of it.
        """
        self._rate.assign(rate)
        return float(self._descend([tf.convert_to_tensor(gradient) for gradient in gradients], tf.constant(clip)))

    @tf.function(autograph=False)
    def _descend(self, gradients: Sequence[tf.Tensor], clip: tf.Tensor) -> tf.Tensor:
        norm = tf.linalg.global_norm(gradients)

        def step() -> tf.Tensor:
            (clipped,), _ = tf.clip_by_global_norm([_row(gradients)], clip, use_norm=norm)
            self._row.assign(_row(self.variables))
            self._adam.apply([clipped], [self._row])
            for variable, part in zip(self.variables, tf.split(self._row, self._sizes), strict=True):
                variable.assign(tf.reshape(part, variable.shape))
            return norm

        return tf.cond(tf.math.is_finite(norm), step, lambda: norm)

    def values(self) -> list[NDArray[Any]]:
        """Of the variables."""
        return [variable.numpy() for variable in self.variables]

    def state(self) -> dict[str, NDArray[Any]]:
        """Variables and the optimizer's."""
        moments = [part for row in self._moments() for part in self._parts(row.numpy())]
        arrays = [*self.values(), *moments, self._adam.step.numpy()]
        return {f"variable{i}": array for i, array in enumerate(arrays)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """What `state` gave."""
        arrays = [state[f"variable{i}"] for i in range(3 * len(self.variables) + 1)]
        for variable, array in zip(self.variables, arrays[: len(self.variables)], strict=True):
            variable.assign(array)
        for k, row in enumerate(self._moments(), 1):
            parts = arrays[k * len(self.variables) : (k + 1) * len(self.variables)]
            row.assign(np.concatenate([np.ravel(part) for part in parts]))
        self._adam.step.assign(arrays[-1])

    def _moments(self) -> tuple[tf.Variable, tf.Variable]:
        return self._adam.m[0], self._adam.v[0]

    def _parts(self, row: NDArray[Any]) -> list[NDArray[Any]]:
        """One array for each variable, of its shape."""
        ends = np.cumsum(self._sizes)[:-1]
        return [part.reshape(v.shape) for part, v in zip(np.split(row, ends), self.variables, strict=True)]


def _row(tensors: Sequence[Any]) -> tf.Tensor:
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
