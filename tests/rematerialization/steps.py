"""Small training steps of several kinds, and what they compute step by step."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfplace
from tests.placing import random_placement
from tfplace.core.graph import OpGraph

BATCH = 8
ONE = ["CPU:0"]
L = keras.layers


def _classifier(model: Any) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], jit_compile=False)
    return model


def cnn() -> tuple[Any, tuple[int, ...]]:
    """BatchNorm, which updates moving averages, and Dropout, whose draws come from a counter."""
    block = (lambda: L.Conv2D(4, 3, padding="same"), L.BatchNormalization, L.ReLU, lambda: L.Dropout(0.3))
    layers = [layer() for _ in range(4) for layer in block]
    return _classifier(keras.Sequential([L.Input((8, 8, 3)), *layers, L.GlobalAveragePooling2D(), L.Dense(5)])), (
        8,
        8,
        3,
    )


def transformer() -> tuple[Any, tuple[int, ...]]:
    x = inputs = L.Input((6, 8))
    for _ in range(2):
        x = L.LayerNormalization()(x + L.Dropout(0.2)(L.MultiHeadAttention(2, 4, dropout=0.2)(x, x)))
        x = L.LayerNormalization()(x + L.Dense(8)(L.Dense(16, "gelu")(x)))
    return _classifier(keras.Model(inputs, L.Dense(5)(L.GlobalAveragePooling1D()(x)))), (6, 8)


def lstm() -> tuple[Any, tuple[int, ...]]:
    """Dense layers around a while loop, which keeps lists for its gradient."""
    dense = (L.Dense(8, "gelu"), L.LayerNormalization(), L.Dropout(0.2), L.Dense(8, "gelu"), L.LayerNormalization())
    model = keras.Sequential(
        [L.Input((5, 4)), *dense, L.LSTM(6, return_sequences=True), L.Dense(8, "gelu"), L.Dense(5)]
    )
    model.add(L.GlobalAveragePooling1D())
    return _classifier(model), (5, 4)


def built(make: Any, **options: Any) -> tuple[OpGraph, list[Any]]:
    """The step's graph and three batches for it."""
    keras.utils.set_random_seed(0)
    model, shape = make()
    random = np.random.default_rng(0)
    batches = [
        (random.normal(size=(BATCH, *shape)).astype(np.float32), random.integers(0, 5, BATCH).astype(np.int32))
        for _ in range(3)
    ]
    return tfplace.extract(model, batches[0], **options), batches


def trained(graph: OpGraph, source: OpGraph, batches: list[Any], devices: list[str] = ONE, **options: Any) -> list[Any]:
    """Results of a step for each batch and all variables after the last one, as arrays; the variables are put back.

    Args:
      graph: the step.
      source: the graph that has the variables.
      batches: what each step is given.
      devices: on which ops are at random.
      **options: of `tfplace.apply`.
    """
    variables = list(source.origin.variables().values())  # type: ignore[union-attr]
    before = [variable.numpy() for variable in variables]
    placed = tfplace.apply(graph, random_placement(graph, devices), **options)
    out = [
        np.asarray(leaf)
        for batch in batches
        for leaf in tf.nest.flatten(placed(tf.nest.map_structure(tf.constant, batch)))
    ]
    out += [variable.numpy() for variable in variables]
    placed.restore()
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return out
