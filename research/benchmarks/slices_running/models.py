"""Models whose step takes a core some 50 to 500 ms, with batches that are the same in every process."""

from __future__ import annotations

import numpy as np

BATCH = {"cnn": 384, "transformer": 160, "lstm": 128, "embedding_mlp": 1024}
"""Examples of a step."""

_CLASSES, _WORDS, _LENGTH = 10, 2000, 48
_TABLE = (200_000, 128)
"""Rows and columns of the large embedding: 102 MB in float32."""


def build(name, keras, seed=0):
    """A compiled model, and the batch `(x, y)` of a step.

    Args:
      name: of `BATCH`.
      keras: the package `keras` or `tf_keras`.
      seed: of the weights and the batch.
    """
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    layers, batch = keras.layers, BATCH[name]
    if name == "cnn":
        inputs, outputs = _cnn(keras, layers)
        x = rng.standard_normal((batch, *inputs.shape[1:]), np.float32)
    elif name == "embedding_mlp":
        inputs, outputs = _embedding_mlp(keras, layers)
        x = rng.integers(_TABLE[0], size=(batch, *inputs.shape[1:]), dtype=np.int32)
    else:
        inputs, outputs = {"transformer": _transformer, "lstm": _lstm}[name](keras, layers)
        x = rng.integers(_WORDS, size=(batch, *inputs.shape[1:]), dtype=np.int32)
    model = keras.Model(inputs, layers.Dense(_CLASSES)(outputs), name=name)
    optimizer = keras.optimizers.SGD(0.01) if name == "embedding_mlp" else keras.optimizers.Adam(1e-3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model, (x, rng.integers(_CLASSES, size=batch, dtype=np.int32))


def _cnn(keras, layers):
    x = inputs = keras.Input((32, 32, 3))
    for filters in (32, 64, 128):
        # without a bias, which BatchNorm would take away again: of its gradient, all rounding, Adam makes whole steps
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
    return inputs, layers.GlobalAveragePooling2D()(x)


def _transformer(keras, layers):
    inputs = keras.Input((_LENGTH,), dtype="int32")
    x = layers.Embedding(_WORDS, 128)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(layers.MultiHeadAttention(4, 32)(x, x)))
        inner = layers.Dense(128)(layers.Dense(512, activation="relu")(x))
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(inner))
    return inputs, layers.GlobalAveragePooling1D()(x)


def _lstm(keras, layers):
    inputs = keras.Input((_LENGTH,), dtype="int32")
    return inputs, layers.LSTM(256)(layers.Embedding(_WORDS, 128)(inputs))


def _embedding_mlp(keras, layers):
    inputs = keras.Input((8,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(*_TABLE)(inputs))
    for _ in range(3):
        x = layers.Dense(1024, activation="relu")(x)
    return inputs, x
