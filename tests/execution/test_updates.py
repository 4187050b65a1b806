"""Updates of variables wait for what still reads the old values, so that no step holds weights twice."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import tfplace
from tfplace.execution.devices import canonical
from tfplace.execution.updates import with_updates_last
from tfplace.execution.waits import NO_WAITS, Waits
from tfplace.measurement.backends.local import LocalDevices
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.running import Running

X = np.ones((4, 4), np.float32)


class Weights(tf.Module):
    """Two variables, and steps that update them."""

    def __init__(self):
        self.a, self.b = (tf.Variable(tf.ones((4, 4)), name=name) for name in "ab")

    def update(self, x):
        read = tf.math.multiply(self.a.read_value(), x, name="reader")
        self.a.assign_sub(x)
        return read

    def update_then_read(self, x):
        old = self.a.read_value()
        self.a.assign_sub(x)
        return tf.math.multiply(old, self.a.read_value(), name="reader")

    def read_each_after_the_other(self, x):
        a, b = self.a.read_value(), self.b.read_value()
        self.a.assign_sub(x)
        self.b.assign_sub(x)
        first = tf.math.multiply(a, self.b.read_value(), name="first")
        return first + tf.math.multiply(b, self.a.read_value(), name="second")

    def read_in_a_loop(self, x):
        a = self.a.read_value()
        out = tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, h @ a), (0, x))[1]
        self.a.assign_sub(x)
        return out


def graph_of(method):
    weights = Weights()
    return tfplace.extract(tf.function(getattr(weights, method)), (X,))


def waits_of(graph, elsewhere=(), before=NO_WAITS):
    """What the update of each variable waits for, with these ops on a second device."""
    on = np.array([name in elsewhere for name in graph.op_names], np.int32)
    return with_updates_last(graph, on, before)


def updates_of(graph):
    return [name for name, kind in zip(graph.op_names, graph.op_types, strict=True) if kind.startswith("AssignSub")]


# ---- what waits for what ---------------------------------------------------------------------------------------------


def test_an_update_waits_for_the_reader_of_the_old_value():
    graph = graph_of("update")
    assert waits_of(graph).after == {updates_of(graph)[0]: ("reader",)}


def test_an_update_does_not_wait_for_a_reader_on_another_device():
    assert not waits_of(graph_of("update"), elsewhere=["reader"]).after


def test_an_update_does_not_wait_for_what_waits_for_it():
    assert not waits_of(graph_of("update_then_read")).after


def test_updates_do_not_wait_for_one_another_in_a_cycle():
    graph = graph_of("read_each_after_the_other")
    assert not {"first", "second"} & {u for before in waits_of(graph).after.values() for u in before}


def test_an_update_does_not_wait_for_a_turn_of_a_loop():
    graph = graph_of("read_in_a_loop")
    inside = {name for name, kind in zip(graph.op_names, graph.op_types, strict=True) if kind == "MatMul"}
    assert inside and not inside & {u for before in waits_of(graph).after.values() for u in before}


def test_waits_that_are_there_stay_and_a_cycle_through_them_is_none():
    graph = graph_of("update")
    (update,) = updates_of(graph)
    joint = Waits({"joint": (update,), "reader": ("joint",)}, {"joint": canonical("CPU:0")})
    assert waits_of(graph, before=joint) == joint


# ---- what a step holds -----------------------------------------------------------------------------------------------


def test_a_training_step_makes_no_copies_of_its_weights():
    import keras

    keras.utils.set_random_seed(0)
    hidden = [keras.layers.Dense(64, use_bias=False) for _ in range(6)]
    model = keras.Sequential([keras.Input((64,)), *hidden, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    graph = tfplace.extract(model, (np.ones((2, 64), np.float32), np.ones((2, 1), np.float32)))
    backend = LocalDevices(inter_op=4)
    program = StepGraph(graph)
    program.place(dict.fromkeys(graph.op_names, backend.devices[0]), waits_of(graph))
    running = Running(program, backend, None)
    try:
        running()
        assert [held for _ in range(5) for held in allocated_by_updates(running.traced())] == []
    finally:
        running.close()


def allocated_by_updates(metadata):
    """Bytes that each update took for a copy."""
    nodes = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
    return [
        memory.total_bytes
        for node in nodes
        if "AssignSubVariableOp" in node.node_name
        for memory in node.memory
        if memory.total_bytes > 0
    ]
