"""A Vision Transformer on ImageNet-sized images."""

from __future__ import annotations

from tfplace_zoo.base import Model, check_divides
from tfplace_zoo.imagenet import classifier


def build(
    batch: int = 32,
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    patch: int = 16,
    size: int = 224,
    classes: int = 1000,
    dropout: float = 0.1,
) -> Model:
    """The training step of a Vision Transformer; ViT-B/16 by default, ViT-L/16 with 24, 1024 and 16.

    Args:
      batch: images in a step.
      layers: blocks.
      width: of the token vectors; the feed-forward layers are 4 times as wide.
      heads: attention heads; divides `width`.
      patch: height and width in pixels of what becomes one token; divides `size`.
      size: height and width in pixels.
      classes: number of labels.
      dropout: rate after the positions and in every block.

    Raises:
      ValueError: `patch` does not divide `size`, or `heads` `width`.
    """
    check_divides("size", size, "patch", patch)
    import keras
    from keras import layers as kl

    from tfplace_zoo import parts

    images = keras.Input((size, size, 3), batch_size=batch, name="images")
    x = kl.Conv2D(width, patch, strides=patch, name="patches")(images)
    x = kl.Reshape(((size // patch) ** 2, width), name="tokens")(x)
    x = parts.Positions(name="positions")(parts.ClassToken(name="class_token")(x))
    x = kl.Dropout(dropout, name="dropout")(x)
    for i in range(layers):
        x = parts.block(x, heads, f"block_{i}", dropout=dropout, pre_norm=True, epsilon=1e-6)
    x = kl.LayerNormalization(epsilon=1e-6, name="last_norm")(x)
    outputs = kl.Dense(classes, activation="softmax", name="predictions")(x[:, 0])
    return classifier(
        "vit",
        keras.Model(images, outputs, name="vit"),
        batch,
        keras.optimizers.Adam(1e-3),
        paper="Dosovitskiy et al. 2021; no placement paper uses it",
        departures="a head without the hidden layer of training from scratch; dropout on attention weights too, and "
        "none between the two dense layers of a block; no weight decay, warm-up or clipping of gradients",
    )
