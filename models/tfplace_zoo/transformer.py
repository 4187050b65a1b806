"""A Transformer encoder that classifies texts."""

from __future__ import annotations

from tfplace_zoo.base import Model


def build(
    batch: int = 32,
    *,
    length: int = 128,
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    vocabulary: int = 10000,
    classes: int = 2,
    dropout: float = 0.1,
) -> Model:
    """The training step of a Transformer encoder with learned positions, in Keras layers.

    Args:
      batch: texts in a step.
      length: tokens in a text.
      layers: encoder blocks.
      width: of the token vectors; the feed-forward layers are 4 times as wide.
      heads: attention heads; divides `width`.
      vocabulary: number of tokens.
      classes: number of labels.
      dropout: rate after the embedding and in every block.

    Raises:
      ValueError: `heads` does not divide `width`.
    """
    import keras
    import tensorflow as tf

    from tfplace_zoo import parts

    tokens = keras.Input((length,), batch_size=batch, dtype="int32", name="tokens")
    x = keras.layers.Embedding(vocabulary, width, name="tokens_embedding")(tokens)
    x = keras.layers.Dropout(dropout)(parts.Positions(name="positions")(x))
    for i in range(layers):
        x = parts.block(x, heads, f"block_{i}", dropout=dropout, pre_norm=False, activation="relu", epsilon=1e-6)
    pooled = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(tokens, keras.layers.Dense(classes, name="logits")(pooled), name="transformer")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss, jit_compile=False)
    return Model(
        "transformer",
        model,
        (tf.TensorSpec((batch, length), tf.int32), tf.TensorSpec((batch,), tf.int32)),
        "Vaswani et al. 2017, encoder only; relatives are placed by GDP (Transformer-XL) and Tarnawski et al. (BERT)",
        "learned positions; dropout on attention weights too; embeddings that are not scaled; normalisation after each "
        "sum; mean pooling, no class token; constant learning rate",
    )
