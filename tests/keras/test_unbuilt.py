"""Models without weights, which their first step makes: placed they get those of a plain fit, slots too."""

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.keras.fitting import X, assert_same, both, callback, devices_of, fit, keras_of

TARGETS = X[:, :1]


def sequential(keras):
    layers = keras.layers
    parts = [layers.Dense(4, activation="tanh"), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(1)]
    return keras.Sequential(parts)


def subclassed(keras):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.inner = keras.layers.Dense(5), sequential(keras)

        def call(self, x, training=None):
            return self.inner(self.first(x), training=training)

    return Model()


def without_call(keras):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [sequential(keras), sequential(keras)]

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = sum(tf.reduce_mean((part(x, training=True) - y) ** 2) for part in self.parts)
            weights = self.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"error": loss}

    return Model()


def values(model):
    slots = model.optimizer.variables
    return [np.array(v) for v in [*model.weights, *(slots() if callable(slots) else slots)]]


def make(package, kind):
    keras = keras_of(package)
    keras.utils.set_random_seed(2)
    model = kind(keras)
    loss = None if kind is without_call else "mse"
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
    assert not model.built
    return model


@pytest.mark.parametrize(
    ("package", "kind"),
    [
        ("keras", without_call),
        ("tf_keras", subclassed),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("keras", sequential),
                ("keras", subclassed),
                ("tf_keras", sequential),
                ("tf_keras", without_call),
            ]
        ),
    ],
)
def test_a_fit_gives_the_weights_and_slots_of_a_plain_one(package, kind):
    call = callback()
    plain = make(package, kind)
    history = fit(plain, y=TARGETS)
    placed = make(package, kind)  # only now, as initial weights are drawn in `fit`
    assert_same(history, fit(placed, call, y=TARGETS))
    for a, b in zip(values(plain), values(placed), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-3)
    assert len(call.actual.counts) >= 2
    assert devices_of(placed) == {"CPU:0"}


@pytest.mark.parametrize("training", [True, False])
@both
def test_the_graph_of_a_model_that_was_not_built(package, training):
    model = make(package, sequential)
    graph = tfplace.extract(model, (X, TARGETS) if training else X, training=training)
    weights = [v for v in graph.variables if v.trainable]
    assert len(weights) == 6
    assert ("MatMul" in graph.op_types) and (len(graph.variables) > len(model.weights)) == training
    fit(model, y=TARGETS)  # takes other batch sizes
