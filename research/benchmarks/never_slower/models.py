"""Models of many kinds whose plain training step takes a core some 5 to 300 ms, with random weights and data."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from tfplace_zoo import zoo

from research.benchmarks.slices_running.models import build

SEED = 0


def _part(name, examples, package):
    """A model of the study of split steps, with fewer examples in a batch."""
    model, batch = build(name, package, SEED)
    return model, tuple(part[:examples] for part in batch)


def _zoo(name, **sizes):
    keras.utils.set_random_seed(SEED)
    made = zoo.build(name, **sizes)
    return made.model, tf.nest.map_structure(values, made.batch)


def _application(name, examples, size, **settings):
    keras.utils.set_random_seed(SEED)
    model = getattr(keras.applications, name)(input_shape=(size, size, 3), weights=None, **settings)
    return _regression(model, examples)


def _small_ops(layers, width, examples):
    """An MLP of which every op takes microseconds, so that all that is not an op counts."""
    keras.utils.set_random_seed(SEED)
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(layers)]
    return _regression(keras.Sequential([keras.Input((width,)), *hidden], name="small_ops"), examples)


def _regression(model, examples):
    model.compile(keras.optimizers.Adam(1e-3), "mse", jit_compile=False)
    shapes = ((examples, *tensor.shape[1:]) for tensor in (model.inputs[0], model.outputs[0]))
    return model, tuple(values(tf.TensorSpec(shape)) for shape in shapes)


def values(spec):
    rng = np.random.default_rng(SEED)
    if spec.dtype.is_integer:
        return rng.integers(2, size=spec.shape).astype(spec.dtype.as_numpy_dtype)  # valid in every table of the zoo
    return rng.standard_normal(spec.shape, spec.dtype.as_numpy_dtype)


MODELS = {
    "cnn": lambda: _part("cnn", 64, keras),
    "transformer": lambda: _part("transformer", 32, keras),
    "lstm": lambda: _part("lstm", 32, keras),
    "embedding_mlp": lambda: _part("embedding_mlp", 256, keras),
    "small_ops": lambda: _small_ops(layers=30, width=32, examples=32),
    "gpt": lambda: _zoo("gpt", batch=2, length=64, layers=3, width=96, heads=3, vocabulary=2000),
    "vit": lambda: _zoo("vit", batch=4, layers=3, width=96, heads=3, size=96),
    "dlrm": lambda: _zoo("dlrm", batch=128, most_rows=20_000, width=32),
    "wavenet": lambda: _zoo("wavenet_2x18", batch=1, samples=480, residual=16, skip=32),
    "MobileNetV2": lambda: _application("MobileNetV2", 8, 64, classes=10),
    "ResNet50": lambda: _application("ResNet50", 2, 64, classes=10),
    "VGG16": lambda: _application("VGG16", 2, 32, include_top=False, pooling="avg"),
    "tf_keras cnn": lambda: _part("cnn", 64, tf_keras),
    "tf_keras transformer": lambda: _part("transformer", 32, tf_keras),
}
"""Name -> makes a compiled model, and the batch `(x, y)` of a step."""
