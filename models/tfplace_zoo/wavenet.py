"""A model of raw audio: stacks of dilated causal convolutions."""

from __future__ import annotations

from tfplace_zoo.base import Model


def build(
    batch: int = 16,
    *,
    stacks: int = 2,
    layers: int = 18,
    samples: int = 7680,
    residual: int = 128,
    skip: int = 256,
    classes: int = 256,
) -> Model:
    """The training step of an unconditional WaveNet.

    Args:
      batch: pieces of audio in a step.
      stacks: repetitions of the dilations 1, 2, 4, ...
      layers: gated convolutions in all; `stacks` divides it.
      samples: in a piece of audio.
      residual: channels between the layers, and of the gates.
      skip: channels of the sum of all layers' skip connections.
      classes: of mu-law quantised samples.

    Raises:
      ValueError: `stacks` does not divide `layers`.
    """
    import keras
    import tensorflow as tf

    from tfplace_zoo.residual_block import ResidualBlock

    if stacks < 1 or layers % stacks:
        raise ValueError(f"received {layers} layers in {stacks} stacks; expected layers to be a multiple of stacks.")
    audio = keras.Input((samples,), batch_size=batch, dtype="int32", name="audio")
    x = keras.layers.Embedding(classes, residual, name="embedding")(audio)
    x = keras.layers.Conv1D(residual, 2, padding="causal", name="causal")(x)
    streams = [x]
    for i in range(layers):
        dilation = 2 ** (i % (layers // stacks))
        streams = ResidualBlock(skip, dilation=dilation, last=i == layers - 1, name=f"block_{i}")(streams)
    x = keras.layers.ReLU(name="skips")(streams[-1])
    x = keras.layers.Conv1D(skip, 1, activation="relu", name="hidden")(x)
    model = keras.Model(audio, keras.layers.Conv1D(classes, 1, name="logits")(x), name="wavenet")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # in a trace, new variables would have the step traced twice
    spec = tf.TensorSpec((batch, samples), tf.int32)
    return Model(
        "wavenet",
        model,
        (spec, spec),
        "van den Oord et al. 2016; placed as WaveNet by GDP and GO",
        "GDP's '2-stack 18-layer' and '4-stack 36-layer' are read as 9 layers a stack, dilations 1 to 256; channels, "
        "batch and length are not given there: 7,680 samples as in Parallel WaveNet, widths such that 36 layers need "
        "about one 16 GiB device; samples are embedded, not one-hot, before the first convolution; not conditioned",
    )
