"""A deep learning recommendation model with large embedding tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfplace_zoo.base import Model

# Distinct values of each categorical column of the Criteo Terabyte click logs, as MLPerf's benchmark counts them.
CRITEO = (
    *(39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10),
    *(2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36),
)


def build(
    batch: int = 2048,
    *,
    most_rows: int = 10_000_000,
    width: int = 128,
    dense: int = 13,
    bottom: Sequence[int] = (512, 256),
    top: Sequence[int] = (1024, 1024, 512, 256),
) -> Model:
    """The training step of DLRM: click or no click from dense numbers and one value of each of 26 categories.

    The tables take 26 GiB by default, the five largest of them 4.8 GiB each.

    Args:
      batch: examples in a step.
      most_rows: of a table; categories with more values are cut off there, so ids have to be hashed to fewer before.
      width: of the embedded vectors.
      dense: numbers that describe an example.
      bottom: hidden layers that turn the numbers into one more vector.
      top: hidden layers on the pairwise products.
    """
    import keras
    import tensorflow as tf
    from keras import layers

    from tfplace_zoo.interaction import Interaction, zeros

    numbers = keras.Input((dense,), batch_size=batch, name="numbers")
    categories = keras.Input((len(CRITEO),), batch_size=batch, dtype="int32", name="categories")
    vectors = [_perceptron(numbers, (*bottom, width), "bottom")]
    for i, rows in enumerate(CRITEO):
        table = layers.Embedding(min(rows, most_rows), width, embeddings_initializer=zeros, name=f"table_{i}")
        vectors.append(table(categories[:, i]))
    x = _perceptron(Interaction(name="interaction")(vectors), top, "top")
    model = keras.Model((numbers, categories), layers.Dense(1, name="logit")(x), name="dlrm")
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    x_spec = (tf.TensorSpec((batch, dense), tf.float32), tf.TensorSpec((batch, len(CRITEO)), tf.int32))
    return Model(
        "dlrm",
        model,
        (x_spec, tf.TensorSpec((batch, 1), tf.float32)),
        "Naumov et al. 2019, sizes as in MLPerf's training benchmark; no placement paper uses it",
        "tables of at most ten million rows by default, not forty; one value of each category; tables start at zero, "
        "so that the model can be built and placed on a machine that could not hold them; ids are to be hashed to the "
        "tables' rows beforehand",
    )


def _perceptron(x: Any, widths: Sequence[int], name: str) -> Any:
    from keras import layers

    for i, width in enumerate(widths):
        x = layers.Dense(width, activation="relu", name=f"{name}_{i}")(x)
    return x
