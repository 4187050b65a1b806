"""What every classifier of ImageNet-sized images shares: how it is compiled and what a step is given."""

from __future__ import annotations

from typing import Any

from tfplace_zoo.base import Model


def classifier(name: str, model: Any, batch: int, optimizer: Any, *, paper: str, departures: str) -> Model:
    """Compiles a Keras model that gives a probability for each label of an image.

    Args:
      name: in the zoo.
      model: takes images [B, height, width, 3] and ends in a softmax.
      batch: images in a step.
      optimizer: a Keras optimizer or its name.
      paper: as in `Model`.
      departures: as in `Model`; that there is no input pipeline goes without saying.
    """
    import tensorflow as tf

    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    x = tf.TensorSpec((batch, *model.input_shape[1:]), tf.float32, name="images")
    y = tf.TensorSpec((batch,), tf.int32, name="labels")
    return Model(name, model, (x, y), paper, f"{departures}; no input pipeline")
