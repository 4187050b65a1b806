"""Inception-V3 on ImageNet-sized images."""

from __future__ import annotations

from tfplace_zoo.base import Model
from tfplace_zoo.imagenet import classifier


def build(batch: int = 32, *, size: int = 299, classes: int = 1000, optimizer: str = "sgd") -> Model:
    """The training step of Inception-V3.

    Args:
      batch: images in a step; 32 in the placement papers, 64 too in GDP.
      size: height and width in pixels, at least 75.
      classes: number of labels.
      optimizer: a Keras optimizer's name.
    """
    import keras

    return classifier(
        "inception_v3",
        keras.applications.InceptionV3(weights=None, input_shape=(size, size, 3), classes=classes),
        batch,
        optimizer,
        paper="Szegedy et al. 2016; placed by Mirhoseini et al. 2017, HDP, Placeto, Post, GDP",
        departures="no auxiliary classifier, label smoothing or clipping of gradients; SGD instead of RMSProp by "
        "default, so no optimizer slots",
    )
