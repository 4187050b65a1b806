"""A two-tower retrieval model, as recommenders train it."""

from __future__ import annotations

from typing import Any

from tfplace_zoo.base import Model


def build(batch: int = 256, *, layers: int = 6, width: int = 1024, features: int = 256, output: int = 128) -> Model:
    """The training step of two towers of dense layers that meet in the scores of all pairs of a batch.

    Args:
      batch: pairs of a query and an item in a step.
      layers: hidden layers of each tower.
      width: of every hidden layer.
      features: numbers that describe a query or an item.
      output: width of the vectors that are compared.
    """
    import keras
    import tensorflow as tf

    query = keras.Input((features,), batch_size=batch, name="query")
    item = keras.Input((features,), batch_size=batch, name="item")
    ends = [_tower(x, layers, width, output, name) for x, name in ((query, "query"), (item, "item"))]
    scores = keras.ops.matmul(ends[0], keras.ops.transpose(ends[1]))
    model = keras.Model((query, item), scores, name="two_tower")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, jit_compile=False)
    spec = tf.TensorSpec((batch, features), tf.float32)
    return Model(
        "two_tower",
        model,
        ((spec, spec), tf.TensorSpec((batch,), tf.int32)),
        "Yi et al. 2019, sampled softmax over the batch; no placement paper, but the plainest case for two devices",
        "dense features instead of embedded ones; no correction of the sampling bias",
    )


def _tower(x: Any, layers: int, width: int, output: int, name: str) -> Any:
    from keras import layers as kl

    for i in range(layers):
        x = kl.Dense(width, activation="relu", name=f"{name}_{i}")(x)
    return kl.Dense(output, name=f"{name}_out")(x)
