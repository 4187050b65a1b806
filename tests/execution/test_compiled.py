"""A compiled placed step: the numbers of the plain compiled one, where it was told to run."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.execution import step_models
from tests.execution.net import Net, X
from tests.execution.pipelines import pipeline
from tests.execution.test_phases import BATCH, dense
from tests.placing import placement_on, random_placement
from tfplace.core.compilation import XLA
from tfplace.errors import ApplyError, InputError
from tfplace.execution.placed import MOST_SHAPES
from tfplace.group.colocation import colocate

DEVICES = ["CPU:0", "CPU:1"]
STEPS = 5


def by_halves(graph):
    """The first half of the units on one device, the second on the other."""
    count = colocate(graph).num_units
    return placement_on(graph, DEVICES, np.arange(count) * 2 // count)


def on_one(graph):
    return placement_on(graph, DEVICES, np.zeros(colocate(graph).num_units, int))


def variables_of(graph):
    return list(graph.origin.variables().values())


def trained(step, graph, batches, is_function):
    """Logs of some steps, and all variables after them; these are set back."""
    variables = variables_of(graph)
    before = [v.numpy() for v in variables]
    logs = [step(*batch) if is_function else step(batch) for batch in tf.nest.map_structure(tf.constant, batches)]
    after = [v.numpy() for v in variables]
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    return [np.asarray(leaf) for leaf in tf.nest.flatten(logs)], after


CASES = [
    ("lstm_while", on_one),  # loops are compiled whole
    ("inception_like", by_halves),
    ("sonnet_mlp", random_placement),
    pytest.param("lstm_while", by_halves, marks=pytest.mark.slow),
    pytest.param("transformer", random_placement, marks=pytest.mark.slow),
    pytest.param("nested_inputs", by_halves, marks=pytest.mark.slow),
    pytest.param("custom_train_step", random_placement, marks=pytest.mark.slow),
]


@pytest.mark.filterwarnings("ignore:tf.function .* reads variables that the placement has moved")
@pytest.mark.parametrize(("name", "placed_by"), CASES)
def test_a_compiled_step_equals_the_plain_compiled_one(name, placed_by):
    source, batches = step_models.build(name)
    is_function = isinstance(source, tf.types.experimental.PolymorphicFunction)
    if not is_function:
        source.jit_compile = True
    graph = tfplace.extract(source, batches[0])
    concrete = graph.origin.flat.concrete

    @tf.function(jit_compile=True)
    def plain(*arguments):
        return concrete(*arguments)

    logs, weights = trained(plain, graph, batches[:STEPS], is_function)
    placement = placed_by(graph) if placed_by is not random_placement else random_placement(graph, DEVICES)
    placed = tfplace.apply(graph, placement, compile="xla")
    found_logs, found_weights = trained(placed, graph, batches[:STEPS], is_function)
    for found, wanted in zip((*found_logs, *found_weights), (*logs, *weights), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=5e-3)  # Adam makes rates of last bits
    np.testing.assert_allclose(found_logs[0], logs[0], rtol=1e-5)
    actual = placed.actual()
    compiled = {op: cluster.device for cluster in actual.clusters.clusters for op in cluster.ops}
    assert compiled
    assert all(actual.devices[op] == placement.devices[op] for op in compiled)
    assert not [moved for moved in actual.moved if moved.op in compiled]
    placed.restore()


def test_a_split_step_is_compiled_too():
    model = dense()
    graph = tfplace.extract(model, BATCH, slices=2)
    data = tf.nest.map_structure(tf.constant, BATCH)
    device = np.zeros(colocate(graph).num_units, int)
    device[np.unique(colocate(graph).unit_of[graph.slices.slice_of == 1])] = 1
    start = [v.numpy() for v in model.variables]
    placed = tfplace.apply(graph, placement_on(graph, DEVICES, device), compile="xla")
    for _ in range(STEPS):
        placed(data)
    placed.restore()
    weights = model.get_weights()
    assert {cluster.device[-5:] for cluster in placed.clusters.clusters} == {"CPU:0", "CPU:1"}
    for variable, value in zip(model.variables, start, strict=True):
        variable.assign(value)
    model.compile(type(model.optimizer).from_config(model.optimizer.get_config()), model.loss, jit_compile=True)
    for _ in range(STEPS):
        model.train_on_batch(*BATCH)
    for found, wanted in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("order", ["by_use", "critical_path"])
def test_orders_of_single_ops_cut_no_clusters(order):
    graph = tfplace.extract(dense(), BATCH, slices=2)
    free = pipeline(graph, ("first", "second"))
    one_by_one = np.arange(graph.num_ops, dtype=np.int32)
    placed = tfplace.apply(graph, free, compile="xla")
    expected = functions_of(placed)
    placed.replace(dataclasses.replace(free, phases=one_by_one, order=order))
    assert functions_of(placed) == expected
    placed.restore()


def test_re_placing_compiles_only_clusters_that_changed():
    source, batches = step_models.build("sonnet_mlp")
    graph = tfplace.extract(source, batches[0])
    whole = on_one(graph)
    placed = tfplace.apply(graph, whole, compile="xla")
    first = functions_of(placed)
    placed.replace(by_halves(graph))
    assert not first & functions_of(placed)
    placed.replace(whole)
    assert functions_of(placed) == first
    placed.restore()


def functions_of(placed):
    """Names of the functions that are compiled, which say what is in them."""
    return {*placed._program._called.numbered}


def test_what_the_program_asks_for_is_done_by_default():
    net = Net()
    asks = tf.function(net._train, jit_compile=True)
    for source, compiled in ((net.train, False), (asks, True)):
        graph = tfplace.extract(source, (X,))
        placed = tfplace.apply(graph, on_one(graph))
        assert (placed.clusters is not None) == compiled
        placed(tf.constant(X))
        placed.restore()
        without = tfplace.apply(graph, on_one(graph), compile="none")
        assert without.clusters is None
        without.restore()


def test_what_has_a_size_that_depends_on_data_runs_op_by_op():
    net = Net()

    @tf.function
    def step(x):
        rows = tf.cast(tf.reduce_max(x) > -1.0, tf.int32) + 1
        return net.train(x)["calls"], tf.tanh(tf.reshape(x, (rows, -1)) * 2.0) + 1.0

    graph = tfplace.extract(step, (X,))
    placed = tfplace.apply(graph, on_one(graph), compile="xla")
    np.testing.assert_allclose(placed(tf.constant(X))[1], np.tanh(X.reshape(2, -1) * 2) + 1, rtol=1e-5)
    left_out = {op for op, why in placed.clusters.left_out.items() if "depends on data" in why}
    assert {graph.op_types[graph.index[op]] for op in left_out} == {"Reshape"}
    placed.restore()


def test_what_xla_refuses_runs_op_by_op_and_no_step_is_done_twice(monkeypatch):
    monkeypatch.setattr("tfplace.execution.cluster_ops.COMPILE_TIME", {})  # so that only XLA knows
    source, batches = step_models.build("lstm_while")
    source.optimizer.build(source.trainable_variables)
    graph = tfplace.extract(source, batches[0])
    placed = tfplace.apply(graph, on_one(graph), compile="xla")
    placed(tf.nest.map_structure(tf.constant, batches[0]))
    assert int(source.optimizer.iterations) == 1
    left_out = {op for op, why in placed.clusters.left_out.items() if "refused" in why}
    assert "TensorListReserve" in {graph.op_types[graph.index[op]] for op in left_out}
    placed.restore()


def branch(w, x):
    taken = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(x @ w) * 2.0, lambda: x @ w - 1.0)
    return tf.exp(tf.sin(tf.tanh(taken) + 1.0) * 0.5)


def default(w, x):
    total = tf.tanh(x @ w) * 2.0 + 1.0
    mean = tf.raw_ops.PlaceholderWithDefault(input=tf.reduce_mean(total), shape=())
    return tf.exp(tf.sin(total) * mean) + 1.0


def lists(w, x):
    made = tf.raw_ops.EmptyTensorList(element_shape=[3, 3], max_num_elements=4, element_dtype=tf.float32)
    made = tf.raw_ops.TensorListPushBack(input_handle=made, tensor=tf.tanh(x @ w) * 2.0 + 1.0)
    made, last = tf.raw_ops.TensorListPopBack(input_handle=made, element_shape=[3, 3], element_dtype=tf.float32)
    away = tf.exp(tf.cos(tf.sin(tf.tanh(last, name="away/a"), name="away/b"), name="away/c"), name="away/d")
    made = tf.raw_ops.TensorListPushBack(input_handle=made, tensor=away * 2.0)
    return tf.raw_ops.TensorListPopBack(input_handle=made, element_shape=[3, 3], element_dtype=tf.float32)[1]


@pytest.mark.parametrize("compute", [branch, default, lists])
def test_branches_defaults_and_lists_give_what_they_give_op_by_op(compute):
    w = tf.Variable(tf.ones((3, 3)) / 3)
    step = tf.function(lambda x: tf.reduce_sum(compute(w, x) * 3.0))
    x = tf.ones((3, 3))
    graph = tfplace.extract(step, (x,))
    units = colocate(graph)
    device = np.zeros(units.num_units, int)
    device[[units.unit_of[v] for v, name in enumerate(graph.op_names) if name.startswith("away")]] = 1
    placed = tfplace.apply(graph, placement_on(graph, DEVICES, device), compile="xla")
    np.testing.assert_allclose(placed(x), step(x), rtol=1e-5)
    placed.restore()


def test_many_shapes_of_data_end_compiling():
    w = tf.Variable(tf.ones((3, 3)))
    step = tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ w) * 2.0 + 1.0, axis=0))
    graph = tfplace.extract(step, (tf.TensorSpec((None, 3), tf.float32),))
    placed = tfplace.apply(graph, on_one(graph), compile="xla")
    for rows in range(1, MOST_SHAPES + 1):
        placed(tf.ones((rows, 3)))
    assert placed.clusters is not None
    with pytest.warns(UserWarning, match=f"{MOST_SHAPES + 1} shapes"):
        placed(tf.ones((100, 3)))
    assert placed.clusters is None
    placed.restore()


_NEXT_PROCESS = """
import tensorflow as tf, tfplace
from tests.execution.net import Net, X
from tests.execution.test_compiled import on_one
graph = tfplace.extract(Net().train, (X,))
tfplace.apply(graph, on_one(graph), compile="xla")(X)
"""


@pytest.mark.slow
def test_what_was_compiled_is_found_again_by_the_next_process(tmp_path):
    environment = os.environ | {"TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={tmp_path}"}

    def kept():
        subprocess.run([sys.executable, "-c", _NEXT_PROCESS], check=True, env=environment, capture_output=True)
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    first = kept()
    assert first and kept() == first


def test_a_step_without_anything_to_compile_is_refused_if_xla_was_asked_for():
    step = tf.function(tf.strings.upper)
    graph = tfplace.extract(step, (tf.constant(["a"]),))
    with pytest.raises(ApplyError) as refused:
        tfplace.apply(graph, on_one(graph), compile="xla")
    assert repr(XLA) in refused.value.received
    assert tfplace.apply(graph, on_one(graph), compile="auto")(tf.constant(["a"])).numpy() == [b"A"]


def test_another_word_is_refused():
    graph = tfplace.extract(Net().train, (X,))
    with pytest.raises(InputError) as refused:
        tfplace.apply(graph, on_one(graph), compile="jit")
    assert "'jit'" in refused.value.received
