"""A wide multi-layer perceptron whose layers are made of columns."""

from __future__ import annotations

from tfplace_zoo.base import Model, check_divides


def build(
    batch: int = 128, *, layers: int = 4, width: int = 2048, columns: int = 2, features: int = 1024, classes: int = 1000
) -> Model:
    """The training step of a classifier of wide dense layers, each computed as columns that are joined again.

    The columns of a layer are independent of one another and all read the whole layer before: splitting them over
    devices is what Krizhevsky calls model parallelism, with an exchange of activations at every layer.

    Args:
      batch: examples in a step.
      layers: hidden layers.
      width: of a hidden layer, all columns together.
      columns: parts of a hidden layer; divides `width`.
      features: numbers that describe an example.
      classes: number of labels.

    Raises:
      ValueError: `columns` does not divide `width`.
    """
    check_divides("width", width, "columns", columns)
    import keras
    import tensorflow as tf

    x = inputs = keras.Input((features,), batch_size=batch, name="features")
    for i in range(layers):
        parts = [
            keras.layers.Dense(width // columns, activation="relu", name=f"layer_{i}_column_{c}")(x)
            for c in range(columns)
        ]
        x = keras.layers.Concatenate(name=f"layer_{i}")(parts) if columns > 1 else parts[0]
    model = keras.Model(inputs, keras.layers.Dense(classes, name="logits")(x), name="wide_mlp")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=False)
    return Model(
        "wide_mlp",
        model,
        (tf.TensorSpec((batch, features), tf.float32), tf.TensorSpec((batch,), tf.int32)),
        "Krizhevsky 2014, the fully connected layers split by columns",
        "a perceptron by itself, without the convolutions before it",
    )
