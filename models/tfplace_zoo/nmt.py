"""Translation by recurrent layers with attention."""

from __future__ import annotations

from tfplace_zoo.base import Model


def build(
    batch: int = 64,
    *,
    layers: int = 2,
    source_length: int = 50,
    target_length: int = 50,
    units: int = 1024,
    vocabulary: int = 32000,
    unroll: bool = True,
) -> Model:
    """The training step of an encoder and a decoder of LSTMs with Bahdanau's attention.

    The first encoder layer reads the source both ways. The first decoder layer also reads what its previous output
    attends to; the context and the last layer's output make the word, as in Luong et al. 2015, equation 5.

    Args:
      batch: pairs of sentences in a step; 64 in the placement papers.
      layers: LSTM layers of the encoder, and as many of the decoder.
      source_length: words of a source sentence.
      target_length: words of a target sentence.
      units: of embeddings, layers and attention.
      vocabulary: words of either language.
      unroll: every time step as ops of its own, as the papers' TensorFlow did, instead of a while loop per layer.
    """
    import keras
    import tensorflow as tf

    from tfplace_zoo.recurrent import LSTM, AttentionLSTM, Stack

    source = keras.Input((source_length,), batch_size=batch, dtype="int32", name="source")
    target = keras.Input((target_length,), batch_size=batch, dtype="int32", name="target")
    x = keras.layers.Embedding(vocabulary, units, name="source_embedding")(source)
    forward, _ = LSTM(units, unroll=unroll, name="encoder_0_forward")([x])
    backward, state = LSTM(units, unroll=unroll, backward=True, name="encoder_0_backward")([x])
    states, sequences = [state], [forward, backward]
    for i in range(1, layers):
        y, state = LSTM(units, unroll=unroll, name=f"encoder_{i}")(sequences)
        states, sequences = [*states, state], [y]
    memory = Stack(name="memory")(sequences)

    x = keras.layers.Embedding(vocabulary, units, name="target_embedding")(target)
    y, context, _ = AttentionLSTM(units, unroll=unroll, name="decoder_0")([x], memory, state=states[0])
    for i in range(1, layers):
        y, _ = LSTM(units, unroll=unroll, name=f"decoder_{i}")([y], state=states[i])
    x = keras.layers.Dense(units, activation="tanh", use_bias=False, name="readout")(
        Stack(name="outputs")([y, context])
    )
    model = keras.Model([source, target], keras.layers.Dense(vocabulary, name="logits")(x), name="nmt")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0, global_clipnorm=5.0), loss, jit_compile=False)
    from_spec, to_spec = (tf.TensorSpec((batch, length), tf.int32) for length in (source_length, target_length))
    return Model(
        "nmt",
        model,
        ((from_spec, to_spec), to_spec),
        "Bahdanau et al. 2015, Luong et al. 2015; placed as NMT by Mirhoseini et al. 2017, HDP, Placeto, Post",
        "sizes of TensorFlow's NMT tutorial, as the placement papers give only layers and batch; LSTM cells; "
        "the decoder starts from the encoder's last states as they are; all sentences have full length, so nothing is "
        "masked; no dropout; full softmax, no maxout; SGD; Keras's initial weights",
    )
