"""ResNet-50 on ImageNet-sized images."""

from __future__ import annotations

from models.base import Model


def build(batch: int = 32, *, size: int = 224, classes: int = 1000, momentum: float = 0.9) -> Model:
    """The training step of ResNet-50.

    Args:
      batch: images in a step.
      size: height and width in pixels, at least 32.
      classes: number of labels.
      momentum: of SGD; 0 leaves the optimizer without slots.
    """
    import keras
    import tensorflow as tf

    model = keras.applications.ResNet50(weights=None, input_shape=(size, size, 3), classes=classes)
    model.compile(keras.optimizers.SGD(0.1, momentum=momentum), "sparse_categorical_crossentropy", jit_compile=False)
    x = tf.TensorSpec((batch, size, size, 3), tf.float32, name="images")
    y = tf.TensorSpec((batch,), tf.int32, name="labels")
    return Model(
        "resnet50",
        model,
        (x, y),
        "He et al. 2016; placed by Post, Baechi and Tarnawski et al. 2020",
        "no weight decay; no input pipeline",
    )
