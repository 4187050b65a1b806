"""A GPT-2 style language model."""

from __future__ import annotations

from tfplace_zoo.base import Model


def build(
    batch: int = 8,
    *,
    length: int = 1024,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    dropout: float = 0.1,
) -> Model:
    """The training step of a decoder that predicts each next token; GPT-2 small by default.

    Args:
      batch: texts in a step.
      length: tokens in a text.
      layers: blocks; 24, 36 and 48 in the larger sizes.
      width: of the token vectors, 1024, 1280 and 1600 in the larger sizes; the feed-forward layers are 4 times as wide.
      heads: attention heads, 16, 20 and 25 in the larger sizes; divides `width`.
      vocabulary: number of tokens.
      dropout: rate after the embedding and in every block.
    """
    import keras
    import tensorflow as tf

    from tfplace_zoo import parts

    tokens = keras.Input((length,), batch_size=batch, dtype="int32", name="tokens")
    embedding = parts.embedding(vocabulary, width, "tokens_embedding")
    x = parts.Positions(name="positions")(embedding(tokens))
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    for i in range(layers):
        x = parts.block(x, heads, f"block_{i}", dropout=dropout, pre_norm=True, causal=True, activation=parts.gelu_tanh)
    x = keras.layers.LayerNormalization(epsilon=1e-5, name="last_norm")(x)
    logits = parts.TiedLogits(embedding, use_bias=False, name="logits")(x)
    model = keras.Model(tokens, logits, name="gpt")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2.5e-4), loss, jit_compile=False)
    spec = tf.TensorSpec((batch, length), tf.int32)
    return Model(
        "gpt",
        model,
        (spec, spec),
        "Radford et al. 2019 (GPT-2); no placement paper uses it",
        "no weight decay, warm-up or clipping of gradients; attention keeps its weights as ordinary tensors",
    )
