"""Convolutional networks of random cells, for images of CIFAR-10's size.

The cells are those of ENAS's micro search space (Pham et al. 2018, section 2.3): a node adds two of the results before
it, each after an operation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tfplace_zoo.base import Model, check_divides

OPERATIONS = ("identity", "sep_conv_3", "sep_conv_5", "avg_pool_3", "max_pool_3")
NODES = 5
"""Computed in a cell; ENAS counts the two results the cell is given as nodes too, which makes 7."""

Cell = Sequence[Sequence[Any]]
"""A node is (first input, its operation, second input, its operation); inputs 0 and 1 are the cell's own."""


def draw(rng: random.Random) -> dict[str, Any]:
    """A normal and a reduction cell, uniformly from the search space."""
    return {kind: [_node(rng, 2 + i) for i in range(NODES)] for kind in ("normal", "reduction")}


def _node(rng: random.Random, results: int) -> list[Any]:
    return [x for _ in range(2) for x in (rng.randrange(results), rng.choice(OPERATIONS))]


def build(
    normal: Cell, reduction: Cell, batch: int = 128, *, layers: int = 3, filters: int = 36, size: int = 32
) -> Model:
    """The training step of a classifier of stacked cells.

    Args:
      normal: the cell that keeps the image's size; a third of the layers, then a reduction cell, and so on.
      reduction: the cell that halves height and width and doubles the filters; there are two.
      batch: images in a step.
      layers: normal cells; divisible by 3.
      filters: of the first cells' nodes.
      size: height and width of an image; divisible by 4.

    Raises:
      ValueError: `layers` or `size` is not divisible so, or a cell has an operation of which there is none.
    """
    for operation in {operation for node in (*normal, *reduction) for operation in node[1::2]}:
        if operation not in OPERATIONS:
            raise ValueError(f"received operation {operation!r}; expected one of {', '.join(OPERATIONS)}.")
    check_divides("layers", layers, "stages", 3)
    check_divides("size", size, "strides", 4)
    import keras
    import tensorflow as tf

    images = keras.Input((size, size, 3), batch_size=batch, name="images")
    x = keras.layers.Conv2D(3 * filters, 3, padding="same", use_bias=False, name="stem_conv")(images)
    before = x = keras.layers.BatchNormalization(name="stem_norm")(x)
    for stage in range(3):
        if stage:
            filters *= 2
            before, x = x, _cell(reduction, before, x, filters, 2, name=f"reduction_{stage}")
        for i in range(layers // 3):
            before, x = x, _cell(normal, before, x, filters, 1, name=f"normal_{stage}_{i}")
    x = keras.layers.GlobalAveragePooling2D(name="pool")(keras.layers.ReLU(name="last_relu")(x))
    model = keras.Model(images, keras.layers.Dense(10, name="logits")(x), name="cifar10")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True), loss, jit_compile=False)
    return Model(
        "cifar10",
        model,
        (tf.TensorSpec((batch, size, size, 3), tf.float32), tf.TensorSpec((batch,), tf.int32)),
        "Pham et al. 2018 (ENAS), micro search space; placed as cifar10 by Placeto (Addanki et al. 2019)",
        "cells drawn at random, not by a controller; fewer layers than ENAS's final networks; a strided 1x1 "
        "convolution where ENAS has a factorised reduction; one convolution for each input of a cell; no dropped "
        "paths, no auxiliary head, no weight decay; constant learning rate",
    )


def _cell(cell: Cell, before: Any, x: Any, filters: int, stride: int, *, name: str) -> Any:
    """The results that no node of the cell reads, side by side."""
    import keras

    given = x.shape[1]
    results = [_fit(before, filters, given, f"{name}_before"), _fit(x, filters, given, f"{name}_input")]
    unread = set(range(2 + len(cell)))
    for i, node in enumerate(cell):
        ends = []
        for side, (source, operation) in enumerate(zip(node[::2], node[1::2], strict=True)):
            unread.discard(source)
            step = stride if source < 2 else 1
            ends.append(_operate(operation, results[source], filters, step, f"{name}_node_{i}_{side}"))
        results.append(keras.layers.Add(name=f"{name}_node_{i}")(ends))
    last = [
        _reduced(results[i], filters, stride, f"{name}_unread_{i}") if i < 2 else results[i] for i in sorted(unread)
    ]
    return keras.layers.Concatenate(name=name)(last) if len(last) > 1 else last[0]


def _operate(operation: str, x: Any, filters: int, stride: int, name: str) -> Any:
    from keras import layers

    if operation == "identity":
        return _reduced(x, filters, stride, name)
    kind, width = operation.rsplit("_", 1)
    if kind == "sep_conv":  # applied twice, as in NASNet; only the first halves
        for i, by in enumerate((stride, 1)):
            x = layers.ReLU(name=f"{name}_relu_{i}")(x)
            x = layers.SeparableConv2D(
                filters, int(width), by, padding="same", use_bias=False, name=f"{name}_sep_conv_{i}"
            )(x)
            x = layers.BatchNormalization(name=f"{name}_norm_{i}")(x)
        return x
    pool = layers.AveragePooling2D if kind == "avg_pool" else layers.MaxPooling2D
    return pool(int(width), stride, padding="same", name=f"{name}_{kind}")(x)


def _fit(x: Any, filters: int, size: int, name: str) -> Any:
    """A cell's input with the cell's filters and size, always through one convolution."""
    return _convolved(x, filters, x.shape[1] // size, name)


def _reduced(x: Any, filters: int, stride: int, name: str) -> Any:
    return x if stride == 1 else _convolved(x, filters, stride, name)


def _convolved(x: Any, filters: int, stride: int, name: str) -> Any:
    from keras import layers

    x = layers.ReLU(name=f"{name}_relu")(x)
    x = layers.Conv2D(filters, 1, stride, padding="same", use_bias=False, name=f"{name}_conv")(x)
    return layers.BatchNormalization(name=f"{name}_norm")(x)
