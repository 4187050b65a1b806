"""What is bound to something that tfplace does not trace: pipelines, handles, inner functions, Python."""

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.placing import random_placement
from tfplace.errors import ApplyError, InputError

DEVICES = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
X = np.random.default_rng(0).random((4, 3), np.float32)


def seeds_that_move(graph, op):
    """Placements with the op elsewhere than on the first device."""
    v = graph.index[op]
    return [p for p in (random_placement(graph, DEVICES, s) for s in range(12)) if p.op_device[v] > 0]


def test_a_variable_that_a_pipeline_reads_stays_where_it_is():
    level, other = tf.Variable(1.0, name="level"), tf.Variable(2.0, name="other")
    data = tf.data.Dataset.range(1000).map(lambda x: tf.cast(x, tf.float32) * 0 + level)

    @tf.function
    def step():
        level.assign_add(1.0)
        other.assign_add(1.0)
        return level.read_value() + other.read_value()

    graph = tfplace.extract(step, ())
    op = next(v for v in graph.variables if v.name == "level").op
    before = level.handle.device
    for placement in seeds_that_move(graph, graph.op_names[op])[:4]:
        placed = tfplace.apply(graph, placement)
        placed()
        assert level.handle.device == before
        assert float(next(iter(data))) == float(level)
        why = {moved.reason for moved in placed.actual().moved}
        assert any("an input pipeline reads" in reason for reason in why)
        placed.restore()


def test_a_variable_that_a_pipeline_made_since_reads_is_moved_no_more():
    level = tf.Variable(1.0, name="level")

    @tf.function
    def step():
        return level.assign_add(1.0)

    graph = tfplace.extract(step, ())
    op = graph.op_names[graph.variables[0].op]
    here, there = seeds_that_move(graph, op)[0], random_placement(graph, ["CPU:0"], 0)
    placed = tfplace.apply(graph, here)
    data = tf.data.Dataset.range(1000).map(lambda x: tf.cast(x, tf.float32) * 0 + level)
    moved_to = level.handle.device
    assert moved_to.endswith(here.devices[op])
    with pytest.raises(ApplyError, match="'level:0', which an input pipeline reads"):
        placed.replace(there)
    assert float(placed()) == 2.0 == float(next(iter(data)))
    with pytest.warns(UserWarning, match=f"'level:0' stays on {here.devices[op]}: an input pipeline") as warned:
        placed.restore()
    assert warned[0].filename == __file__
    assert level.handle.device == moved_to
    assert float(step()) == 3.0 == float(next(iter(data)))
    del data
    placed.replace(there)
    assert float(placed()) == 4.0
    placed.restore()
    assert level.handle.device.endswith("CPU:0")


def test_variables_that_are_used_by_their_handles_are_variables():
    weight, slot = tf.Variable(tf.ones((100, 10))), tf.Variable(tf.zeros((100, 10)), trainable=False)

    @tf.function
    def step(rate):
        tf.raw_ops.ResourceApplyMomentum(
            var=weight.handle, accum=slot.handle, lr=rate, grad=tf.ones((100, 10)), momentum=0.9
        )

    graph = tfplace.extract(step, (np.float32(0.1),))
    assert sorted(v.size_bytes for v in graph.variables) == [4000, 4000]
    op = graph.op_names[graph.variables[0].op]
    placement = seeds_that_move(graph, op)[0]
    placed = tfplace.apply(graph, placement)
    placed(np.float32(0.1))
    device = placement.devices[op]
    assert weight.handle.device.endswith(device) and slot.handle.device.endswith(device)
    np.testing.assert_allclose(weight.numpy(), np.full((100, 10), 0.9))
    assert not placed.actual().moved


def test_inner_functions_for_xla_are_placed_op_by_op():
    weight = tf.Variable(tf.ones((3, 3)))
    inner = tf.function(lambda x: tf.tanh(x @ weight), jit_compile=True)
    step = tf.function(lambda x: tf.reduce_sum(inner(x)))
    graph = tfplace.extract(step, (X,))
    assert {"MatMul", "Tanh"} <= {*graph.op_types}
    assert not [kind for kind in graph.op_types if "PartitionedCall" in kind]
    expected = step(X)
    for seed in range(3):
        np.testing.assert_allclose(tfplace.apply(graph, random_placement(graph, DEVICES, seed))(X), expected, rtol=1e-6)


def test_what_python_runs_meanwhile_is_not_the_placed_program():
    step = tf.function(lambda x: tf.py_function(lambda a: tf.cosh(a) - a, [x], tf.float32) + 1.0)
    graph = tfplace.extract(step, (X,))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    np.testing.assert_allclose(placed(X), step(X), rtol=1e-6)
    assert placed.actual().counts


def test_a_batch_beside_a_graph_is_refused():
    graph = tfplace.extract(tf.function(lambda x: x @ tf.ones((3, 3))), (X,))
    with pytest.raises(InputError, match="a batch with a graph"):
        tfplace.place(graph, "2xP100", batch=(X,), budget=5, progress=False)
    with pytest.raises(InputError, match="a batch with a graph"):
        tfplace.apply(graph, random_placement(graph, DEVICES), (X,))


def test_a_placed_program_is_no_part_of_another_function():
    graph = tfplace.extract(tf.function(lambda x: x @ tf.ones((3, 3))), (X,))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    outer = tf.function(lambda x: placed(x) + 1.0, autograph=False)  # which would wrap the error in one of its own
    with pytest.raises(ApplyError, match=r"inside a tf\.function"):
        outer(X)
    placed(X)


def test_a_call_that_was_not_traced_says_what_was():
    graph = tfplace.extract(tf.function(lambda x: x["a"] @ tf.ones((3, 3))), ({"a": X},))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    placed({"a": X})
    for wrong, said in (((X,), "float32.4, 3"), (({"a": X[:2]},), "{a: float32.2, 3.}"), (({"b": X},), "{b: ")):
        with pytest.raises(
            ApplyError, match=rf"a call with 1 argument: {said}.*was traced with, 1 argument: {{a: float32.4, 3.}}"
        ):
            placed(*wrong)
    placed({"a": X})
