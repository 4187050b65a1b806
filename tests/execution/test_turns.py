"""Loops whose turns wait for one another run few turns at once, and hold no more than these need."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tfplace
from tfplace.execution.turns import turns_at_once
from tfplace.measurement.backends.local import LocalDevices
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running

SIDE = 32
X = np.ones((4, SIDE), np.float32)


def enters(graph):
    return {name for name, kind in zip(graph.op_names, graph.op_types, strict=True) if kind == "Enter"}


def graph_of(step):
    return tfplace.extract(tf.function(step), (X,))


def recurrent(x):
    weight = tf.ones((SIDE, SIDE))
    return tf.while_loop(lambda i, h: i < 9, lambda i, h: (i + 1, tf.tanh(h @ weight)), (0, x))[1]


def test_a_recurrent_loop_runs_one_turn_at_a_time():
    graph = graph_of(recurrent)
    assert turns_at_once(graph) == dict.fromkeys(enters(graph), 1) != {}


def test_two_layers_in_one_loop_run_two_turns_at_once():
    def both(x):
        weight = tf.ones((SIDE, SIDE))

        def turn(i, h, g):
            first = tf.tanh(h @ weight)
            return i + 1, first, tf.tanh(g @ weight + first)

        return tf.while_loop(lambda i, h, g: i < 9, turn, (0, x, x))[2]

    graph = graph_of(both)
    assert turns_at_once(graph) == dict.fromkeys(enters(graph), 2)


def test_a_loop_runs_no_more_turns_at_once_than_the_model_allows():
    def both(x):
        weight = tf.ones((SIDE, SIDE))

        def turn(i, h, g):
            return i + 1, tf.tanh(h @ weight), tf.tanh(g @ weight + h)

        return tf.while_loop(lambda i, h, g: i < 9, turn, (0, x, x), parallel_iterations=1)[2]

    assert set(turns_at_once(graph_of(both)).values()) == {1}


def test_a_loop_over_examples_runs_as_the_model_wants_it():
    graph = graph_of(lambda x: tf.map_fn(lambda row: tf.linalg.matvec(tf.ones((SIDE, SIDE)), row), x))
    assert enters(graph) and not turns_at_once(graph)


def test_of_a_recurrent_loop_for_each_example_the_inner_one_runs_one_turn_at_a_time():
    graph = graph_of(lambda x: tf.map_fn(lambda row: recurrent(row[None])[0], x))
    assert set(turns_at_once(graph).values()) == {1} and enters(graph) - set(turns_at_once(graph))


def test_a_step_without_loops_has_none():
    assert turns_at_once(graph_of(lambda x: x @ tf.ones((SIDE, SIDE)))) == {}


def test_a_backward_pass_holds_the_gradients_of_few_turns():
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((40, 4)), keras.layers.LSTM(SIDE), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    graph = tfplace.extract(model, (np.ones((2, 40, 4), np.float32), np.ones((2, 1), np.float32)))
    backend = LocalDevices(inter_op=4)
    program = StepGraph(graph)
    program.place(dict.fromkeys(graph.op_names, backend.devices[0]))
    running = Running(program, backend, None)
    try:
        running()
        most = max(held_at_once(running.traced(), "while_grad", "MatMul", 4 * SIDE * 4 * SIDE) for _ in range(5))
    finally:
        running.close()
    assert 0 < most <= 2, "one is added up while the next is made"


def held_at_once(metadata, scope, kind, size):
    """How many results of a size, in bytes, ops of a kind in a scope hold at a time."""
    changes = sorted(
        (record.alloc_micros, record.alloc_bytes)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if scope in node.node_name and kind in node.node_name
        for memory in node.memory
        for record in memory.allocation_records
        if abs(record.alloc_bytes) == size
    )
    return int(max(np.cumsum([np.sign(changed) for _, changed in changes]), default=0))
