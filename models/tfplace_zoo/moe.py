"""A language model of mixture-of-experts layers."""

from __future__ import annotations

import math
from typing import Any

from tfplace_zoo.base import Model


def build(
    batch: int = 8,
    *,
    length: int = 512,
    layers: int = 6,
    experts: int = 8,
    top_k: int = 2,
    width: int = 768,
    heads: int = 12,
    capacity_factor: float = 1.25,
    balance: float = 0.01,
    vocabulary: int = 32128,
    dropout: float = 0.1,
) -> Model:
    """The training step of a decoder each of whose blocks has experts instead of one feed-forward network.

    Every expert is a layer of its own, so experts can be placed; a token visits the `top_k` its router likes best.

    Args:
      batch: texts in a step.
      length: tokens in a text.
      layers: blocks.
      experts: in every block.
      top_k: experts a token visits; 1 is the Switch Transformer.
      width: of the token vectors; experts are 4 times as wide inside.
      heads: attention heads; divides `width`.
      capacity_factor: how many times its fair share of tokens an expert takes before it turns them away.
      balance: weight of the loss that spreads tokens evenly.
      vocabulary: number of tokens.
      dropout: rate after the embedding and in every block.

    Raises:
      ValueError: more visits than experts.
    """
    import keras
    import tensorflow as tf

    from tfplace_zoo import parts

    if not 1 <= top_k <= experts:
        raise ValueError(f"received top_k={top_k} with {experts} experts; expected 1 to {experts}.")
    capacity = math.ceil(capacity_factor * batch * length * top_k / experts)
    tokens = keras.Input((length,), batch_size=batch, dtype="int32", name="tokens")
    embedding = parts.embedding(vocabulary, width, "tokens_embedding")
    x = parts.Positions(name="positions")(embedding(tokens))
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    common: dict[str, Any] = {"dropout": dropout, "pre_norm": True}
    for i in range(layers):
        name = f"block_{i}"
        x = parts.residual(x, _attention(heads, dropout, f"{name}_attention"), f"{name}_attention", **common)
        x = parts.residual(x, _mixture(experts, top_k, capacity, balance, name), f"{name}_mixture", **common)
    x = keras.layers.LayerNormalization(epsilon=1e-5, name="last_norm")(x)
    logits = parts.TiedLogits(embedding, use_bias=False, name="logits")(x)
    model = keras.Model(tokens, logits, name="moe")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss, jit_compile=False)
    spec = tf.TensorSpec((batch, length), tf.int32)
    return Model(
        "moe",
        model,
        (spec, spec),
        "Shazeer et al. 2017, with the routing of GShard (Lepikhin et al. 2021) and the balance loss of the Switch "
        "Transformer (Fedus et al. 2022); no placement paper uses it",
        "a decoder by itself; experts in every block; no noise in the gates, and second choices are always followed; "
        "the balance loss counts all top_k choices; Adam instead of Adafactor",
    )


def _attention(heads: int, dropout: float, name: str) -> Any:
    from tfplace_zoo import parts

    return lambda x: parts.attention(x, heads, name, dropout=dropout, causal=True)


def _mixture(experts: int, top_k: int, capacity: int, balance: float, name: str) -> Any:
    """A function of [B, T, width] that sends tokens through experts and puts their answers together again."""
    from tfplace_zoo.routing import Combine, Expert, Router

    def mixture(x: Any) -> Any:
        guests, seats, gates = Router(experts, top_k, capacity, balance, name=f"{name}_router")(x)
        answers = [Expert(i, 4 * x.shape[-1], name=f"{name}_expert_{i}")(x, guests) for i in range(experts)]
        return Combine(name=f"{name}_combine")(answers, seats, gates, x)

    return mixture
