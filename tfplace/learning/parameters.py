"""What is trained: variables, their optimizer, and both as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf
from numpy.typing import NDArray


class Parameters:
    """Variables that Adam descends.

    Args:
      variables: always in the same order.
      rate: of Adam at first.
    """

    def __init__(self, variables: Sequence[tf.Variable], rate: float) -> None:
        self.variables = variables
        self._rate = tf.Variable(rate, trainable=False)
        self._adam = snt.optimizers.Adam(self._rate)
        self._adam.apply([tf.zeros_like(v) for v in variables], variables)  # makes its slots
        self._adam.step.assign(0)

    def descend(self, gradients: Sequence[Any], rate: float, clip: float) -> float:
        """One step of Adam; the norm of the gradients before it is clipped to `clip`.

        None is taken where that is no finite number: parameters that are none would be all that comes of it.
        """
        self._rate.assign(rate)
        return float(self._descend([tf.convert_to_tensor(gradient) for gradient in gradients], tf.constant(clip)))

    @tf.function(autograph=False)
    def _descend(self, gradients: Sequence[tf.Tensor], clip: tf.Tensor) -> tf.Tensor:
        clipped, norm = tf.clip_by_global_norm(gradients, clip)

        def step() -> tf.Tensor:
            self._adam.apply(clipped, self.variables)
            return norm

        return tf.cond(tf.math.is_finite(norm), step, lambda: norm)

    def values(self) -> list[NDArray[Any]]:
        """Of the variables."""
        return [variable.numpy() for variable in self.variables]

    def state(self) -> dict[str, NDArray[Any]]:
        """Variables and the optimizer's."""
        return {f"variable{i}": v.numpy() for i, v in enumerate(self._all())}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """What `state` gave."""
        for i, variable in enumerate(self._all()):
            variable.assign(state[f"variable{i}"])

    def _all(self) -> list[tf.Variable]:
        return [*self.variables, *self._adam.m, *self._adam.v, self._adam.step]
