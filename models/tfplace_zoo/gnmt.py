"""Google's translation system: residual LSTM layers with attention."""

from __future__ import annotations

from typing import Any

from tfplace_zoo.base import Model


def build(
    batch: int = 128,
    *,
    layers: int = 8,
    length: int = 64,
    units: int = 1024,
    vocabulary: int = 32000,
    unroll: bool = True,
) -> Model:
    """The training step of GNMT.

    The first encoder layer reads the source both ways; from the third layer on, encoder and decoder layers add their
    input to their output (section 3.1). The previous output of the first decoder layer attends to the encoder, and
    every decoder layer reads the context (section 3, figure 1), and so does the softmax here.

    Args:
      batch: pairs of sentences in a step.
      layers: LSTM layers of the encoder, and as many of the decoder.
      length: word pieces of a source and of a target sentence; from 64 on, 8 layers are over 50,000 ops, as in GDP.
      units: of embeddings, layers and attention.
      vocabulary: word pieces of either language.
      unroll: every time step as ops of its own, as the papers' TensorFlow did, instead of a while loop per layer.
    """
    import keras
    import tensorflow as tf

    source = keras.Input((length,), batch_size=batch, dtype="int32", name="source")
    target = keras.Input((length,), batch_size=batch, dtype="int32", name="target")
    memory = _encoder(keras.layers.Embedding(vocabulary, units, name="source_embedding")(source), layers, units, unroll)
    x = keras.layers.Embedding(vocabulary, units, name="target_embedding")(target)
    logits = keras.layers.Dense(vocabulary, name="logits")(_decoder(x, memory, layers, units, unroll))
    model = keras.Model([source, target], logits, name="gnmt")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0, global_clipnorm=5.0), loss, jit_compile=False)
    spec = tf.TensorSpec((batch, length), tf.int32)
    return Model(
        "gnmt",
        model,
        ((spec, spec), spec),
        "Wu et al. 2016; placed as GNMT by HDP (as NMT), GDP, GO, EAGLE, Mars, Baechi",
        "batch, units and SGD of TensorFlow's NMT tutorial (wmt16_gnmt_8_layer), as the placement papers give only "
        "layers; 64 word pieces, not its 50, so that 8 layers are over 50,000 ops as in GDP; the decoder starts from "
        "zeros; the softmax reads the context beside the last layer; all sentences have full length, so "
        "nothing is masked; no dropout; full softmax; no Adam phase; Keras's initial weights",
    )


def _encoder(x: Any, layers: int, units: int, unroll: bool) -> Any:
    from tfplace_zoo.recurrent import LSTM, Stack

    forward, _ = LSTM(units, unroll=unroll, name="encoder_0_forward")([x])
    backward, _ = LSTM(units, unroll=unroll, backward=True, name="encoder_0_backward")([x])
    sequences = [forward, backward]
    for i in range(1, layers):
        y, _ = LSTM(units, unroll=unroll, residual=i >= 2, name=f"encoder_{i}")(sequences)
        sequences = [y]
    return Stack(name="memory")(sequences)


def _decoder(x: Any, memory: Any, layers: int, units: int, unroll: bool) -> Any:
    from tfplace_zoo.recurrent import LSTM, AttentionLSTM, Stack

    y, context, _ = AttentionLSTM(units, unroll=unroll, name="decoder_0")([x], memory)
    for i in range(1, layers):
        y, _ = LSTM(units, unroll=unroll, residual=i >= 2, name=f"decoder_{i}")([y, context])
    return Stack(name="outputs")([y, context])
