"""A language model of Transformer blocks that remember the last segment."""

from __future__ import annotations

from tfplace_zoo.base import Model, check_divides


def build(
    batch: int = 24,
    *,
    length: int = 512,
    memory: int = 512,
    layers: int = 2,
    width: int = 512,
    heads: int = 8,
    inner: int = 2048,
    vocabulary: int = 204,
    dropout: float = 0.1,
) -> Model:
    """The training step of Transformer-XL on one segment, by default in the sizes of its character model for enwik8.

    Args:
      batch: segments in a step.
      length: tokens in a segment.
      memory: tokens of earlier segments that every layer remembers, in a variable that the step updates.
      layers: blocks.
      width: of the token vectors.
      heads: attention heads; divides `width`.
      inner: width of the feed-forward layers.
      vocabulary: number of tokens.
      dropout: rate after embedding, positions, attention, dense layers and the last block.

    Raises:
      ValueError: an odd width, half of which are sines and half cosines of distances; or `heads` does not divide it.
    """
    check_divides("width", width, "sines and cosines", 2)
    import keras
    import tensorflow as tf

    from tfplace_zoo.parts import TiedLogits
    from tfplace_zoo.relative_attention import Block, Distances

    def drop(x: object, name: str) -> object:
        return keras.layers.Dropout(dropout, name=name)(x)

    tokens = keras.Input((length,), batch_size=batch, dtype="int32", name="tokens")
    embedding = keras.layers.Embedding(vocabulary, width, name="embedding")
    x = keras.layers.Rescaling(width**0.5, name="embedding_scale")(embedding(tokens))
    positions = drop(Distances(memory, name="positions")(x), "positions_dropout")
    x = drop(x, "embedding_dropout")
    for i in range(layers):
        x = Block(width, heads=heads, inner=inner, memory=memory, dropout=dropout, name=f"block_{i}")(x, positions)
    logits = TiedLogits(embedding, use_bias=True, name="logits")(drop(x, "output_dropout"))
    model = keras.Model(tokens, logits, name="transformer_xl")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2.5e-4, global_clipnorm=0.25), loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # in a trace, new variables would have the step traced twice
    spec = tf.TensorSpec((batch, length), tf.int32)
    return Model(
        "transformer_xl",
        model,
        (spec, spec),
        "Dai et al. 2019; placed as Transformer-XL by GDP and GO",
        "sizes of the authors' enwik8 model for GPUs, as the placement papers give only layers; no adaptive softmax, "
        "which that model has not either; biases of positions per layer, as in the authors' larger models; separate "
        "products for queries, keys and values; constant learning rate; Keras's initial weights",
    )
