"""Inception-V3 on ImageNet-sized images."""

from __future__ import annotations

from models.base import Model


def build(batch: int = 32, *, size: int = 299, classes: int = 1000, optimizer: str = "sgd") -> Model:
    """The training step of Inception-V3.

    Args:
      batch: images in a step; 32 in the placement papers.
      size: height and width in pixels, at least 75.
      classes: number of labels.
      optimizer: a Keras optimizer's name.
    """
    import keras
    import tensorflow as tf

    model = keras.applications.InceptionV3(weights=None, input_shape=(size, size, 3), classes=classes)
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    x = tf.TensorSpec((batch, size, size, 3), tf.float32, name="images")
    y = tf.TensorSpec((batch,), tf.int32, name="labels")
    return Model(
        "inception_v3",
        model,
        (x, y),
        "Szegedy et al. 2016; placed by Mirhoseini et al. 2017, Placeto, Post, GDP",
        "no auxiliary classifier; SGD instead of RMSProp by default, so no optimizer slots; no input pipeline",
    )
