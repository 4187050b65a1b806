"""Mistakes in the code that is traced, and in how its arguments are given, are the user's: one error says where."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.extraction import models
from tfplace.errors import ApplyError, SourceError

X = tf.TensorSpec([3])


class OwnError(Exception):
    """Of a kind that nobody knows."""


def fails(kind):
    if kind == "own":
        raise OwnError("mine")
    if kind == "exit":
        raise SystemExit(3)
    if kind == "shape":
        return tf.ones([3, 4]) @ tf.ones([3, 4])
    return {"attribute": lambda: X.nothing, "key": lambda: {}["a"], "zero": lambda: 1 / 0}[kind]()


KINDS = ("own", "exit", "shape", "attribute", "key", "zero")


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_function_raises_names_its_file_and_line(kind):
    lines, first = inspect.getsourcelines(fails)
    with pytest.raises(SourceError) as refused:
        tfplace.extract(tf.function(lambda x: fails(kind), autograph=False), (X,))
    file, _, line = refused.value.hint.removeprefix("See ").rstrip(".").rpartition(":")
    assert file == __file__
    assert first <= int(line) < first + len(lines)
    assert refused.value.__cause__ is not None


def test_the_line_is_the_users_where_autograph_has_converted_the_code():
    @tf.function
    def step(x):
        if tf.reduce_sum(x) > 0:
            x = x.no_such_thing
        return x

    _, first = inspect.getsourcelines(step.python_function)
    with pytest.raises(SourceError) as refused:
        tfplace.extract(step, (X,))
    assert f"{__file__}:{first + 3}" in refused.value.hint
    assert "no_such_thing" in refused.value.received


def test_whatever_a_models_step_raises_names_its_file_and_line():
    import keras

    class Model(keras.Model):
        def train_step(self, data):
            raise OwnError("mine")

    model = Model()
    model.compile("sgd", "mse")
    with pytest.raises(SourceError) as refused:
        tfplace.extract(model, (np.zeros((2, 3), "float32"), np.zeros((2, 1), "float32")))
    assert "OwnError" in refused.value.received
    assert __file__ in refused.value.hint


@tf.function
def of_two(x, y):
    return x + y


@tf.function
def of_one(batch):
    x, y = batch
    return x + y


@pytest.mark.parametrize(
    ("step", "batch", "received", "expected"),
    [
        (of_two, [X, X], "one argument", "a tuple of its 2 arguments: (x, y)"),
        (of_two, ((X, X),), "a tuple of 1", "a tuple of its 2 arguments: (x, y)"),
        (of_two, (X, X, X), "a tuple of 3", "a tuple of its 2 arguments: (x, y)"),
        (of_two, None, "without a batch", "a tuple of its 2 arguments: (x, y)"),
        (of_one, (X, X), "a tuple of 2", "in a tuple of one: (batch,)"),
        (tf.function(lambda: tf.ones(3)), X, "one argument", "no batch"),
    ],
)
def test_one_argument_and_several_are_told_apart(step, batch, received, expected):
    with pytest.raises(SourceError) as refused:
        tfplace.extract(step, batch)
    assert received in refused.value.received
    assert expected in refused.value.expected


def test_a_placed_step_tells_them_apart_too():
    x = tf.ones([3])
    graph = tfplace.extract(of_two, (x, x))
    placement = tfplace.place(graph, topology="2xP100", placer="single", progress=False)
    step = tfplace.apply(graph, placement, devices={"GPU:0": "CPU:0", "GPU:1": "CPU:1"})
    with pytest.raises(ApplyError) as refused:
        step((x, x))
    assert "1 argument:" in refused.value.received
    assert "2 arguments:" in refused.value.expected


def test_a_step_that_xla_compiles_is_read_and_so_is_what_it_calls():
    inner = tf.function(lambda x: x * 2, jit_compile=True)
    for source in ((inner, (X,)), (inner.get_concrete_function(X),)):
        assert "Mul" in tfplace.extract(*source).op_types
    assert "Mul" in tfplace.extract(tf.function(lambda x: inner(x) + 1), (X,)).op_types


def test_a_keras_model_that_xla_compiles_is_read():
    model = models.keras_cnn()
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
    assert tfplace.extract(model, models.cnn_batch()).num_ops
