"""Transformer-XL's parts: blocks that remember the last segments and attend by relative positions."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

from tfplace_zoo.base import check_divides


class Block(layers.Layer):
    """One layer of Transformer-XL: relative attention over memory and segment, then two dense layers.

    Normalisation follows each sum, as in the authors' code. The memory holds the last inputs of this layer, of earlier
    segments; a step reads it, replaces it, and sends no gradient into it (Dai et al. 2019, section 3.2).

    Args:
      width: of the token vectors.
      heads: of the attention; divides `width`.
      inner: width between the two dense layers.
      memory: tokens remembered.
      dropout: rate after the attention and after each dense layer.
      name: of the layer and its name scope.
    """

    def __init__(self, width: int, *, heads: int, inner: int, memory: int, dropout: float, name: str) -> None:
        super().__init__(name=name)
        self.memory_length = memory
        self.attention = RelativeAttention(width, heads, name="attention")
        self.wide = layers.Dense(inner, activation="relu", name="wide")
        self.narrow = layers.Dense(width, name="narrow")
        self.norms = [layers.LayerNormalization(epsilon=1e-5, name=f"norm_{i}") for i in range(2)]
        self.dropouts = [layers.Dropout(dropout, name=f"dropout_{i}") for i in range(3)]

    def build(self, x_shape: Any, positions_shape: Any) -> None:
        """Makes the memory, all zeros at first, and the parts' weights."""
        batch, _, width = x_shape
        shape = (batch, self.memory_length, width)
        self.memory = self.add_weight(shape=shape, initializer="zeros", trainable=False, name="memory")
        self.attention.build()
        self.wide.build(x_shape)
        self.narrow.build((*x_shape[:2], self.wide.units))
        for norm in self.norms:
            norm.build(x_shape)

    def call(self, x: Any, positions: Any, training: bool | None = None) -> Any:
        """From `[B, T, W]` to the same shape.

        Args:
          x: the segment.
          positions: `[M + T, W]` encodings of the distances M + T - 1 to 0.
          training: whether to drop out.
        """
        drop_attended, drop_wide, drop_narrow = self.dropouts
        seen = tf.concat([tf.stop_gradient(tf.convert_to_tensor(self.memory)), x], axis=1)
        self.memory.assign(tf.stop_gradient(seen[:, seen.shape[1] - self.memory_length :]))
        x = self.norms[0](x + drop_attended(self.attention(x, seen, positions), training=training))
        hidden = drop_wide(self.wide(x), training=training)
        return self.norms[1](x + drop_narrow(self.narrow(hidden), training=training))

    def compute_output_spec(self, x: Any, positions: Any, **_: Any) -> Any:
        """The shape of `x`; known without a trace, which would change the memory."""
        return keras.KerasTensor(x.shape, dtype=x.dtype)


class RelativeAttention(layers.Layer):
    """Multi-head attention whose scores depend on contents and distances (Dai et al. 2019, section 3.3)."""

    def __init__(self, width: int, heads: int, name: str) -> None:
        super().__init__(name=name)
        check_divides("width", width, "heads", heads)
        self.width, self.heads = width, heads

    def build(self, *_: Any) -> None:
        """Makes the projections and the two global biases, `u` and `v` of the paper."""
        width, heads, each = self.width, self.heads, self.width // self.heads
        for name in ("query", "key", "value", "position"):
            weight = self.add_weight(shape=(width, width), initializer="glorot_uniform", name=name)
            setattr(self, f"to_{name}", weight)
        self.to_output = self.add_weight(shape=(width, width), initializer="glorot_uniform", name="output")
        self.content_bias = self.add_weight(shape=(heads, each), initializer="zeros", name="content_bias")
        self.position_bias = self.add_weight(shape=(heads, each), initializer="zeros", name="position_bias")
        self.built = True

    def call(self, x: Any, seen: Any, positions: Any) -> Any:
        """The segment `[B, T, W]` attends to all that was seen, `[B, K, W]`, its own future excepted."""
        query = self._heads(x, self.to_query)
        key, value = self._heads(seen, self.to_key), self._heads(seen, self.to_value)
        distance = self._heads(positions, self.to_position)
        content = tf.einsum("bind,bjnd->bnij", query + tf.convert_to_tensor(self.content_bias), key)
        by_distance = tf.einsum("bind,jnd->bnij", query + tf.convert_to_tensor(self.position_bias), distance)
        scores = (content + relative_shift(by_distance)) * (self.width // self.heads) ** -0.5
        future = tf.logical_not(tf.linalg.band_part(tf.ones(scores.shape[2:], tf.bool), -1, seen.shape[1] - x.shape[1]))
        weights = tf.nn.softmax(tf.where(future, -1e30, scores))
        attended = tf.einsum("bnij,bjnd->bind", weights, value)
        return tf.tensordot(tf.reshape(attended, x.shape), tf.convert_to_tensor(self.to_output), 1)

    def _heads(self, x: Any, weight: Any) -> Any:
        projected = tf.tensordot(x, tf.convert_to_tensor(weight), 1)
        return tf.reshape(projected, (*x.shape[:-1], self.heads, self.width // self.heads))


def relative_shift(scores: Any) -> Any:
    """From scores by distance to scores by position (Dai et al. 2019, appendix B).

    Args:
      scores: `[B, N, T, K]`; the last axis is the distance K - 1 to 0.

    Returns:
      `[B, N, T, K]`; row i holds at j its score for the distance K - T + i - j. Entries of the future mean nothing.
    """
    batch, heads, length, seen = scores.shape
    padded = tf.pad(scores, ((0, 0), (0, 0), (0, 0), (1, 0)))
    slanted = tf.reshape(padded, (batch, heads, seen + 1, length))[:, :, 1:]
    return tf.reshape(slanted, (batch, heads, length, seen))


class Distances(layers.Layer):
    """Sinusoid encodings of the distances from memory + T - 1 to 0, `[memory + T, W]`, for a segment `[B, T, W]`."""

    def __init__(self, memory: int, name: str) -> None:
        super().__init__(name=name)
        self.memory_length = memory

    def call(self, x: Any) -> Any:
        """Sines, then cosines (Vaswani et al. 2017, section 3.5, in the order of Transformer-XL's code)."""
        _, length, width = x.shape
        distance = tf.range(self.memory_length + length - 1, -1, -1, dtype=tf.float32)
        angles = distance[:, None] * 10000.0 ** -(tf.range(0.0, width, 2.0) / width)
        return tf.concat([tf.sin(angles), tf.cos(angles)], axis=1)

    def compute_output_spec(self, x: Any) -> Any:
        """The output's shape."""
        return keras.KerasTensor((self.memory_length + x.shape[1], x.shape[2]))
