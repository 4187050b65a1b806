"""Parts that Transformers of several kinds are made of. Loads Keras: to be imported when a model is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import layers, ops

from tfplace_zoo.base import check_divides


class Positions(layers.Layer):
    """Adds a learned vector to each position of [B, T, width].

    Args:
      most: positions there are vectors for, at least T; by default T.
      name: of the layer.
    """

    def __init__(self, most: int | None = None, *, name: str) -> None:
        super().__init__(name=name)
        self.most = most

    def build(self, shape: tuple[int, ...]) -> None:
        """One vector for each position."""
        self.table = self.add_weight(shape=(self.most or shape[1], shape[2]), initializer=_normal(), name="table")

    def call(self, x: Any) -> Any:
        """[B, T, width]."""
        return x + self.table[: x.shape[1]]


class ClassToken(layers.Layer):
    """Puts a learned vector before the tokens: [B, T, width] becomes [B, T + 1, width]."""

    def build(self, shape: tuple[int, ...]) -> None:
        """One vector for all inputs."""
        self.token = self.add_weight(shape=(1, 1, shape[-1]), initializer="zeros", name="token")

    def call(self, x: Any) -> Any:
        """[B, T + 1, width]."""
        return ops.concatenate([ops.broadcast_to(self.token, (ops.shape(x)[0], 1, x.shape[2])), x], axis=1)


class Pick(layers.Layer):
    """Some tokens of each text: [B, T, width] and positions [B, M] to [B, M, width]."""

    def call(self, x: Any, positions: Any) -> Any:
        """[B, M, width]."""
        return tf.gather(x, positions, batch_dims=1)


class TiedLogits(layers.Layer):
    """Scores of every word by the embedding's own weights, [..., width] to [..., vocabulary].

    Args:
      embedding: a built `Embedding`.
      use_bias: whether each word has a bias.
      name: of the layer.
    """

    def __init__(self, embedding: Any, *, use_bias: bool, name: str) -> None:
        super().__init__(name=name)
        self.embedding, self.use_bias = embedding, use_bias

    def build(self, shape: tuple[int, ...]) -> None:
        """The bias, if any."""
        words = (self.embedding.input_dim,)
        self.bias = self.add_weight(shape=words, initializer="zeros", name="bias") if self.use_bias else None

    def call(self, x: Any) -> Any:
        """[..., vocabulary]."""
        scores = ops.matmul(x, ops.transpose(self.embedding.embeddings))
        return scores if self.bias is None else scores + self.bias


def embedding(words: int, width: int, name: str) -> Any:
    """An embedding that starts as BERT's and GPT-2's do."""
    return layers.Embedding(words, width, embeddings_initializer=_normal(), name=name)


def residual(
    x: Any, branch: Callable[[Any], Any], name: str, *, dropout: float, pre_norm: bool, epsilon: float = 1e-5
) -> Any:
    """A branch beside the identity, normalised before the branch or after the sum.

    Args:
      x: [B, T, width].
      branch: makes as many numbers of what it is given.
      name: of the layers.
      dropout: rate on the branch's result.
      pre_norm: normalise what the branch reads (GPT-2, ViT), not the sum (BERT).
      epsilon: of the normalisation.
    """
    norm = layers.LayerNormalization(epsilon=epsilon, name=f"{name}_norm")
    result = branch(norm(x) if pre_norm else x)
    if dropout:
        result = layers.Dropout(dropout, name=f"{name}_dropout")(result)
    x = layers.Add(name=f"{name}_add")([x, result])
    return x if pre_norm else norm(x)


def attention(x: Any, heads: int, name: str, *, dropout: float, causal: bool = False) -> Any:
    """Self-attention over [B, T, width]; `causal` lets a token see only those before it and itself.

    Raises:
      ValueError: `heads` does not divide the width.
    """
    check_divides("width", x.shape[-1], "heads", heads)
    layer = layers.MultiHeadAttention(heads, x.shape[-1] // heads, dropout=dropout, name=name)
    return layer(x, x, use_causal_mask=causal)


def feed_forward(x: Any, name: str, *, activation: Any = "gelu") -> Any:
    """Two dense layers, the first 4 times as wide as [B, T, width]."""
    hidden = layers.Dense(4 * x.shape[-1], activation=activation, name=f"{name}_wide")(x)
    return layers.Dense(x.shape[-1], name=f"{name}_narrow")(hidden)


def block(
    x: Any,
    heads: int,
    name: str,
    *,
    dropout: float,
    pre_norm: bool,
    causal: bool = False,
    activation: Any = "gelu",
    epsilon: float = 1e-5,
) -> Any:
    """A Transformer block: self-attention and a feed-forward network, each as a residual."""
    common: dict[str, Any] = {"dropout": dropout, "pre_norm": pre_norm, "epsilon": epsilon}
    inner = f"{name}_attention"
    x = residual(x, lambda y: attention(y, heads, inner, dropout=dropout, causal=causal), inner, **common)
    inner = f"{name}_feed_forward"
    return residual(x, lambda y: feed_forward(y, inner, activation=activation), inner, **common)


def gelu_tanh(x: Any) -> Any:
    """GELU by the tanh formula, as GPT-2 computes it."""
    return keras.activations.gelu(x, approximate=True)


def _normal() -> Any:
    return keras.initializers.TruncatedNormal(stddev=0.02)
