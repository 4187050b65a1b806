"""Routing of tokens to experts. Loads Keras: to be imported when a model is built.

Counting is done in floats, which hold every count below 2**24 exactly: TensorFlow has few GPU kernels for integers.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import layers


class Router(layers.Layer):
    """Gives every token a seat at the experts it likes best, as long as they have seats.

    First choices are served before second ones, and earlier tokens before later ones. A loss, `balance` times the
    number of experts times the sum over experts of (share of the choices) x (mean probability), is least when tokens
    spread evenly (Fedus et al. 2022, equations 4 to 6).

    Args:
      experts: E.
      top_k: k, experts a token visits.
      capacity: C, seats at each expert.
      balance: weight of the loss.
      name: of the layer.
    """

    def __init__(self, experts: int, top_k: int, capacity: int, balance: float, *, name: str) -> None:
        super().__init__(name=name)
        self.experts, self.top_k, self.capacity, self.balance = experts, top_k, capacity, balance

    def build(self, shape: tuple[int, ...]) -> None:
        """One vector for each expert."""
        self.kernel = self.add_weight(shape=(shape[-1], self.experts), initializer="glorot_uniform", name="kernel")

    def call(self, x: Any) -> tuple[Any, Any, Any]:
        """Routes the N = B T tokens of [B, T, width].

        Returns:
          guests: [E, C] the token in each seat; 0 in empty ones, whose answers nobody reads.
          seats: [N, k] where each choice of a token sits in the flat [E * C]; E * C if it was turned away.
          gates: [N, k] weights of the answers, which add up to 1 (for k = 1 the probability itself); 0 if turned away.
        """
        tokens = tf.reshape(x, (-1, x.shape[-1]))
        probability = tf.nn.softmax(tf.matmul(tokens, self.kernel))
        gates, chosen = tf.math.top_k(probability, self.top_k)
        if self.top_k > 1:
            gates /= tf.reduce_sum(gates, axis=1, keepdims=True)
        asked = tf.one_hot(tf.reshape(tf.transpose(chosen), (-1,)), self.experts)
        self.add_loss(self._imbalance(asked, probability))
        seats, kept = self._seat(asked)
        everyone = tf.tile(tf.range(tf.cast(tf.shape(tokens)[0], tf.float32)), (self.top_k,))
        size = self.experts * self.capacity
        guests = tf.scatter_nd(seats[:, None], everyone, (size + 1,))[:size]
        guests = tf.reshape(tf.cast(guests, tf.int32), (self.experts, self.capacity))
        seats, kept = (tf.transpose(tf.reshape(a, (self.top_k, -1))) for a in (seats, kept))
        return guests, seats, gates * kept

    def _seat(self, asked: Any) -> tuple[Any, Any]:
        """[k N] seats and whether they were got, for [k N, E] choices in the order of service."""
        before = tf.reduce_sum(tf.cumsum(asked, exclusive=True) * asked, axis=1)
        kept = tf.cast(before < self.capacity, tf.float32)
        first = tf.linalg.matvec(asked, tf.range(float(self.experts)) * self.capacity)
        seats = kept * (first + before) + (1.0 - kept) * self.experts * self.capacity
        return tf.cast(seats, tf.int32), kept

    def _imbalance(self, asked: Any, probability: Any) -> Any:
        share = tf.reduce_mean(asked, axis=0)
        return self.balance * self.experts * tf.reduce_sum(share * tf.reduce_mean(probability, axis=0))


class Expert(layers.Layer):
    """A feed-forward network over the tokens that sit at it.

    Args:
      index: which row of `guests` is its own.
      hidden: width inside.
      name: of the layer.
    """

    def __init__(self, index: int, hidden: int, *, name: str) -> None:
        super().__init__(name=name)
        self.index, self.hidden = index, hidden

    def build(self, x_shape: tuple[int, ...], guests_shape: tuple[int, ...]) -> None:
        """Both layers."""
        rows, width = guests_shape[1], x_shape[-1]
        self.wide = layers.Dense(self.hidden, activation="gelu", name="wide")
        self.narrow = layers.Dense(width, name="narrow")
        self.wide.build((rows, width))
        self.narrow.build((rows, self.hidden))

    def call(self, x: Any, guests: Any) -> Any:
        """[C, width] answers for [B, T, width] tokens and [E, C] guests."""
        tokens = tf.reshape(x, (-1, x.shape[-1]))
        return self.narrow(self.wide(tf.gather(tokens, guests[self.index])))


class Combine(layers.Layer):
    """Puts the experts' answers back where their tokens came from; who was turned away everywhere gets zeros."""

    def call(self, answers: list[Any], seats: Any, gates: Any, x: Any) -> Any:
        """[B, T, width] from E answers [C, width], seats [N, k] and gates [N, k]; `x` [B, T, width] gives the shape."""
        nobody = tf.zeros((1, x.shape[-1]), x.dtype)
        seated = tf.concat([*answers, nobody], axis=0)
        # dense gradients: those of rows alone would be parted among the experts by ops of unknown size
        mine = tf.gather(tf.reshape(seated, seated.shape), seats)
        return tf.reshape(tf.reduce_sum(mine * gates[:, :, None], axis=1), tf.shape(x))
