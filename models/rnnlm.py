"""A language model of stacked LSTMs."""

from __future__ import annotations

from models.base import Model


def build(
    batch: int = 64,
    *,
    steps: int = 20,
    layers: int = 2,
    units: int = 1024,
    vocabulary: int = 10000,
    unroll: bool = True,
) -> Model:
    """The training step of a word-level language model.

    Args:
      batch: sequences in a step; 64 in the placement papers.
      steps: words in a sequence.
      layers: stacked LSTM layers.
      units: of the embedding and of every layer.
      vocabulary: number of words.
      unroll: every time step as ops of its own, as the papers' TensorFlow did, instead of a while loop per layer.
    """
    import keras
    import tensorflow as tf

    words = keras.Input((steps,), batch_size=batch, dtype="int32", name="words")
    x = keras.layers.Embedding(vocabulary, units, name="embedding")(words)
    for i in range(layers):
        # cuDNN's fused LSTM is one op per layer and exists on GPUs only: nothing in it can be placed.
        x = keras.layers.LSTM(units, return_sequences=True, unroll=unroll, use_cudnn=False, name=f"lstm_{i}")(x)
    model = keras.Model(words, keras.layers.Dense(vocabulary, name="logits")(x), name="rnnlm")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0, clipnorm=5.0), loss, jit_compile=False)
    spec = tf.TensorSpec((batch, steps), tf.int32)
    return Model(
        "rnnlm",
        model,
        (spec, spec),
        "Zaremba et al. 2014, Jozefowicz et al. 2016; placed as RNNLM by Mirhoseini et al. 2017, HDP, GDP",
        "gradients clipped per variable, not by global norm; no dropout; full softmax; state is not carried over",
    )
