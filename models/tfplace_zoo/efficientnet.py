"""EfficientNet-B0 to -B7 on ImageNet-sized images."""

from __future__ import annotations

from tfplace_zoo.base import Model
from tfplace_zoo.imagenet import classifier

_SIDE = (224, 240, 260, 300, 380, 456, 528, 600)


def build(batch: int = 32, *, variant: int = 0, size: int | None = None, classes: int = 1000) -> Model:
    """The training step of an EfficientNet.

    Args:
      batch: images in a step.
      variant: 0 for B0 to 7 for B7; depth, width and size grow together.
      size: height and width in pixels, at least 32; by default the variant's own.
      classes: number of labels.

    Raises:
      ValueError: another variant.
    """
    import keras

    if variant not in range(len(_SIDE)):
        raise ValueError(f"received variant={variant}; expected 0 to {len(_SIDE) - 1}.")
    side = _SIDE[variant] if size is None else size
    make = getattr(keras.applications, f"EfficientNetB{variant}")
    return classifier(
        "efficientnet",
        make(weights=None, input_shape=(side, side, 3), classes=classes),
        batch,
        keras.optimizers.RMSprop(0.016, rho=0.9, momentum=0.9, epsilon=1e-3),
        paper="Tan and Le 2019; no placement paper uses it",
        departures="images are rescaled and normalised inside the model; no weight decay, label smoothing or "
        "moving average of the weights; constant learning rate",
    )
