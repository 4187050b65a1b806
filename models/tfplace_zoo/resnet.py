"""ResNet-50, -101 or -152 on ImageNet-sized images."""

from __future__ import annotations

from tfplace_zoo.base import Model
from tfplace_zoo.imagenet import classifier

_DEPTHS = (50, 101, 152)


def build(batch: int = 32, *, depth: int = 50, size: int = 224, classes: int = 1000, momentum: float = 0.9) -> Model:
    """The training step of a residual network of bottleneck blocks.

    Args:
      batch: images in a step; 32 in Post.
      depth: 50, 101 or 152 layers with weights.
      size: height and width in pixels, at least 32.
      classes: number of labels.
      momentum: of SGD; 0 leaves the optimizer without slots.

    Raises:
      ValueError: another depth.
    """
    import keras

    if depth not in _DEPTHS:
        raise ValueError(f"received depth={depth}; expected one of {', '.join(map(str, _DEPTHS))}.")
    make = getattr(keras.applications, f"ResNet{depth}")
    return classifier(
        f"resnet{depth}",
        make(weights=None, input_shape=(size, size, 3), classes=classes),
        batch,
        keras.optimizers.SGD(0.1, momentum=momentum),
        paper="He et al. 2016; ResNet-152 placed by HDP and Post, ResNet-50 by Baechi and Tarnawski et al. 2020",
        departures="convolutions have biases; no weight decay",
    )
