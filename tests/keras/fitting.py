"""What tests of the callback share: a small model of either Keras, fits, and what is compared."""

import importlib

import numpy as np
import pytest

from tfplace.keras import PlacementCallback

DEVICES = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
RNG = np.random.default_rng(0)
X = RNG.random((22, 6), np.float32)
Y = RNG.integers(3, size=22)
# Grappler fuses the plain step and not the placed one: the last bits differ.
CLOSE = {"rtol": 2e-3, "atol": 2e-3}

both = pytest.mark.parametrize("package", ["keras", "tf_keras"])
but_slowly = pytest.mark.parametrize("package", ["keras", pytest.param("tf_keras", marks=pytest.mark.slow)])
"""For what does not ask which package it is."""
"""For what each Keras does in a way of its own; what is the callback's alone is tested with Keras 3."""


def keras_of(package):
    return importlib.import_module(package)


def make_model(package, name=None, **compile_arguments):
    keras = keras_of(package)
    keras.utils.set_random_seed(0)
    layers = keras.layers
    names = [f"{name}_{i}" if name else None for i in range(3)]
    first, norm = layers.Dense(8, "tanh", name=names[0]), layers.BatchNormalization(name=names[1])
    model = keras.Sequential([layers.Input((6,)), first, norm, layers.Dense(3, name=names[2])], name=name)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, **{"metrics": ["accuracy"], **compile_arguments})
    return model


def train_function_of(model):
    model.make_train_function()
    return model.train_function


def callback(**arguments):
    return PlacementCallback(**{"placer": "round_robin", "budget": 10, "verbose": 0, **arguments})


def fit(model, *callbacks, **arguments):
    given = {"x": X, "y": Y, "batch_size": 4, "epochs": 2, "verbose": 0, "shuffle": False, **arguments}
    return model.fit(callbacks=list(callbacks), **given).history


def devices_of(model):
    tensors = [getattr(v, "value", v) for v in [*model.weights, *_slots(model)]]
    return {(t() if callable(t) else t).device[-5:] for t in tensors}


def _slots(model):
    variables = model.optimizer.variables
    return variables() if callable(variables) else variables


def assert_same(plain, placed):
    assert set(plain) == set(placed)
    for name in plain:
        np.testing.assert_allclose(placed[name], plain[name], **CLOSE, err_msg=name)


def assert_same_weights(plain, placed):
    for a, b in zip(plain.get_weights(), placed.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, **CLOSE)
