"""A language model of stacked LSTMs."""

from __future__ import annotations

from tfplace_zoo.base import Model


def build(
    batch: int = 64,
    *,
    steps: int = 35,
    layers: int = 2,
    units: int = 1500,
    vocabulary: int = 10000,
    unroll: bool = True,
) -> Model:
    """The training step of a word-level language model, by default the "large" one of Zaremba et al. 2014.

    Args:
      batch: sequences in a step; 64 in the placement papers, 20 in Zaremba et al.
      steps: words in a sequence.
      layers: stacked LSTM layers.
      units: of the embedding and of every layer.
      vocabulary: number of words.
      unroll: every time step as ops of its own, as the papers' TensorFlow did, instead of a while loop per layer.
    """
    import keras
    import tensorflow as tf

    from tfplace_zoo.recurrent import LSTM, Stack

    words = keras.Input((steps,), batch_size=batch, dtype="int32", name="words")
    x = keras.layers.Embedding(vocabulary, units, name="embedding")(words)
    for i in range(layers):
        x, _ = LSTM(units, unroll=unroll, name=f"lstm_{i}")([x])
    logits = keras.layers.Dense(vocabulary, name="logits")(Stack(name="outputs")([x]))
    model = keras.Model(words, logits, name="rnnlm")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0, global_clipnorm=10.0), loss, jit_compile=False)
    spec = tf.TensorSpec((batch, steps), tf.int32)
    return Model(
        "rnnlm",
        model,
        (spec, spec),
        "Zaremba et al. 2014, Jozefowicz et al. 2016; placed as RNNLM by Mirhoseini et al. 2017, HDP, GDP",
        "sizes of Zaremba et al., as the placement papers give only layers and batch; no dropout; full softmax; state "
        "is not carried over from step to step; mean loss over words, not their sum per sequence; Keras's initial "
        "weights",
    )
