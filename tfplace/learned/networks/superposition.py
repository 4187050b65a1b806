"""Dense layers that a graph's own features gate, so that one policy holds many graphs."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class Superposed(snt.Module):
    """x -> W(c * x) + b with the gate c = 2 sigmoid(V g + a): GDP's superposition (Zhou et al. 2019, section 3.3).

    The paper does not tell the range of its gate; here it begins near 1, which is a dense layer.

    Args:
      size: of what comes out.
      conditioned: whether there is a gate at all.
    """

    def __init__(self, size: int, conditioned: bool = True, name: str | None = None) -> None:
        super().__init__(name=name)
        self._size = size
        self._conditioned = conditioned

    @snt.once
    def _build(self, x: tf.Tensor) -> None:
        self._dense = snt.Linear(self._size, w_init=tf.zeros)
        self._gate = snt.Linear(int(x.shape[-1]), w_init=tf.zeros) if self._conditioned else None

    def __call__(self, x: tf.Tensor, graph: tf.Tensor) -> tf.Tensor:
        """[..., N] and the graph's features [1, G] -> [..., size]."""
        self._build(x)
        if self._gate is not None:
            x *= 2.0 * tf.sigmoid(self._gate(graph))
        return self._dense(x)
