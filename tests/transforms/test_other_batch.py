"""Steps of any batch size from their graphs for two sizes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tfplace.transforms.other_batch import at_batch


def convolutional():
    layers = [
        keras.layers.Conv2D(8, 3),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dense(5),
    ]
    model = keras.Sequential([keras.Input((16, 16, 3)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    return model


@pytest.fixture(scope="module")
def read(logical_cpus):
    model = convolutional()

    def step(examples, slices=None):
        batch = tf.TensorSpec((examples, 16, 16, 3)), tf.TensorSpec((examples,), tf.int32)
        return tfplace.extract(model, batch, slices=slices or [examples])

    return step


@pytest.mark.parametrize("examples", [12, 256])
def test_sizes_between_and_beyond_are_those_of_the_step_read_with_them(read, examples):
    scaled, real = at_batch(read(8), read(32), examples), read(examples)
    assert scaled.tensor_shape == real.tensor_shape
    assert np.array_equal(scaled.tensor_bytes, real.tensor_bytes)
    assert scaled.slices.sizes == (examples,)
    costs = [tfplace.formulate(graph, "4xP100").costs.compute_s for graph in (scaled, real)]
    np.testing.assert_allclose(*costs)


def test_steps_of_other_ops_are_not_put_together(read):
    assert at_batch(read(8), read(8, 2), 64) is None
    assert at_batch(read(8), read(8), 64) is None
    assert read(8).origin is not None and at_batch(read(8), read(16), 64).origin is None
