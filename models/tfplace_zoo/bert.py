"""BERT's pre-training: masked words and next sentences."""

from __future__ import annotations

from typing import Any

from tfplace_zoo.base import Model


def build(
    batch: int = 24,
    *,
    length: int = 384,
    masked: int = 58,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    positions: int = 512,
    dropout: float = 0.1,
) -> Model:
    """The training step of BERT on both of its tasks; BERT-base by default, BERT-large with 24, 1024 and 16.

    Args:
      batch: pairs of sentences in a step.
      length: tokens in a pair.
      masked: words to predict in a pair, 15 % in the paper.
      layers: blocks.
      width: of the token vectors; the feed-forward layers are 4 times as wide.
      heads: attention heads; divides `width`.
      vocabulary: number of tokens.
      positions: the longest pair the weights are made for, at least `length`.
      dropout: rate after the embedding and in every block.

    Raises:
      ValueError: pairs longer than `positions`, or `heads` does not divide `width`.
    """
    if length > positions:
        raise ValueError(f"received length={length}, positions={positions}; expected at most as many tokens.")
    import keras
    import tensorflow as tf
    from keras import layers as kl

    from tfplace_zoo import parts

    shapes = {"tokens": (length,), "segments": (length,), "masked_positions": (masked,)}
    inputs = [keras.Input(s, batch_size=batch, dtype="int32", name=n) for n, s in shapes.items()]
    embedding = parts.embedding(vocabulary, width, "tokens_embedding")
    x = kl.Add(name="embedding_add")([embedding(inputs[0]), parts.embedding(2, width, "segments_embedding")(inputs[1])])
    x = parts.Positions(positions, name="positions")(x)
    x = kl.Dropout(dropout, name="dropout")(kl.LayerNormalization(epsilon=1e-12, name="embedding_norm")(x))
    for i in range(layers):
        x = parts.block(x, heads, f"block_{i}", dropout=dropout, pre_norm=False, epsilon=1e-12)
    outputs = [_words(x, inputs[2], embedding), _next_sentence(x)]
    model = keras.Model(inputs, outputs, name="bert")
    losses = [keras.losses.SparseCategoricalCrossentropy(from_logits=True) for _ in outputs]
    model.compile(keras.optimizers.Adam(1e-4), losses, jit_compile=False)
    x_spec = tuple(tf.TensorSpec((batch, *s), tf.int32, name=n) for n, s in shapes.items())
    y_spec = (tf.TensorSpec((batch, masked), tf.int32), tf.TensorSpec((batch,), tf.int32))
    return Model(
        "bert",
        model,
        (x_spec, y_spec),
        "Devlin et al. 2019; placed by Tarnawski et al. 2020, EAGLE and Mars",
        "texts fill their length, so nothing is padded or masked out; every text has the same number of words to "
        "predict; no weight decay, warm-up or clipping of gradients",
    )


def _words(x: Any, positions: Any, embedding: Any) -> Any:
    """[B, masked, vocabulary] scores of the words that were masked."""
    from keras import layers

    from tfplace_zoo import parts

    x = parts.Pick(name="masked_words")(x, positions)
    x = layers.Dense(x.shape[-1], activation="gelu", name="masked_words_dense")(x)
    x = layers.LayerNormalization(epsilon=1e-12, name="masked_words_norm")(x)
    return parts.TiedLogits(embedding, use_bias=True, name="masked_words_logits")(x)


def _next_sentence(x: Any) -> Any:
    """[B, 2] scores of whether the second sentence follows the first, from the first token."""
    from keras import layers

    pooled = layers.Dense(x.shape[-1], activation="tanh", name="pooler")(x[:, 0])
    return layers.Dense(2, name="next_sentence_logits")(pooled)
