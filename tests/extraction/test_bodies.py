"""Functions that ops keep are found by what the ops are made of, read, and counted as often as they run."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tfplace.cost.analytic import analytic_costs
from tfplace.errors import InputError
from tfplace.extraction.bodies import RULE_ONCE, RULE_UNREAD

ROWS = tf.TensorSpec([6, 8])
TOPOLOGY = "2xP100"


@pytest.fixture(scope="module")
def w(logical_cpus):
    return tf.Variable(tf.eye(8), name="w")


def kept(graph):
    """Op type -> executions of its function."""
    return {graph.op_types[body.op]: body.runs for body in graph.bodies}


def body_of(graph, kind):
    (body,) = [body for body in graph.bodies if graph.op_types[body.op] == kind]
    return body


def rules(graph):
    return {graph.op_types[graph.index[u.op]]: u.rule for u in graph.unknown}


def notes(graph):
    placed = tfplace.place(graph, topology=TOPOLOGY, placer="single", baselines=(), progress=False)
    return " ".join(placed.notes)


# ---- a loop over a dataset -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def epoch_and_step(logical_cpus):
    """The graphs of a training loop over 5 batches, and of the step that it calls."""
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    data = tf.data.Dataset.from_tensor_slices((np.ones((20, 8), "f4"), np.ones((20, 1), "f4"))).batch(4, True)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    @tf.function
    def epoch():
        total = 0.0
        for x, y in data:
            total += step(x, y)
        return total

    return tfplace.extract(epoch, ()), tfplace.extract(step, (tf.TensorSpec([4, 8]), tf.TensorSpec([4, 1])))


def test_a_loop_over_a_dataset_takes_as_long_as_its_steps(epoch_and_step):
    epoch, step = epoch_and_step
    assert kept(epoch)["ScanDataset"] == 5
    topology = tfplace.Topology.preset(TOPOLOGY)
    whole, once = (analytic_costs(graph, topology).compute_s.sum(axis=0) for graph in (epoch, step))
    assert whole == pytest.approx(5 * once, rel=0.2)


def test_a_function_is_read_with_the_shapes_and_variables_it_is_given(epoch_and_step):
    epoch, step = epoch_and_step
    inside = body_of(epoch, "ScanDataset").graph

    def products(graph):
        shapes = [graph.tensor_shape[graph.op_tensors[v]] for v, t in enumerate(graph.op_types) if t == "MatMul"]
        return sorted(shapes)

    assert products(inside) == products(step)
    sizes = {v.name: v.size_bytes for v in step.variables}
    assert {v.name: v.size_bytes for v in inside.variables} == sizes


def test_a_graph_that_is_mostly_inside_a_function_is_refused_with_what_to_pass_instead(epoch_and_step):
    epoch, step = epoch_and_step
    with pytest.raises(InputError) as refused:
        tfplace.place(epoch, topology=TOPOLOGY, progress=False)
    assert "ScanDataset" in refused.value.received
    assert "tfplace.extract(train_step, batch)" in refused.value.hint
    assert tfplace.formulate(step, TOPOLOGY).num_units > 1


def test_functions_are_kept_in_files(epoch_and_step, tmp_path):
    epoch, _ = epoch_and_step
    epoch.save(tmp_path / "epoch.npz")
    again = tfplace.OpGraph.load(tmp_path / "epoch.npz")
    assert kept(again) == kept(epoch)
    assert again.fingerprint == epoch.fingerprint
    inside = body_of(again, "ScanDataset").graph
    assert inside.op_names == body_of(epoch, "ScanDataset").graph.op_names


# ---- datasets made in the graph --------------------------------------------------------------------------------------


def test_elements_follow_from_how_a_dataset_is_made(w):
    @tf.function
    def f(x):
        data = tf.data.Dataset.from_tensor_slices(x).map(lambda row: tf.linalg.matvec(w, row)).repeat(3).batch(4)
        return data.reduce(0.0, lambda total, rows: total + tf.reduce_sum(rows))

    graph = tfplace.extract(f, ROWS)
    assert kept(graph) == {"MapDataset": 6, "ReduceDataset": 5}  # 18 elements, 4 by 4


def test_what_follows_a_filter_has_unknown_length(w):
    @tf.function
    def f(x):
        data = tf.data.Dataset.from_tensor_slices(x).filter(lambda row: row[0] > 0)
        return data.reduce(tf.zeros(8), lambda total, row: total + tf.linalg.matvec(w, row))

    graph = tfplace.extract(f, ROWS)
    assert kept(graph) == {"FilterDataset": 6, "ReduceDataset": 1}
    assert rules(graph)["ReduceDataset"] == RULE_ONCE != rules(graph)["FilterDataset"]


def test_a_variable_that_only_a_map_reads_is_hidden(w):
    @tf.function
    def f(x):
        data = tf.data.Dataset.from_tensor_slices(x).map(lambda row: tf.linalg.matvec(w, row)).batch(6)
        for _ in range(50):
            x = tf.tanh(x @ tf.transpose(x) @ x)
        return next(iter(data)) + x

    with pytest.raises(InputError) as refused:
        tfplace.formulate(tfplace.extract(f, ROWS), TOPOLOGY)
    assert "100 % of the variables' bytes" in refused.value.received


def test_a_smaller_part_is_named_in_the_notes(w):
    @tf.function
    def f(x):
        data = tf.data.Dataset.from_tensor_slices(x).map(lambda row: row + 1).batch(6)
        for _ in range(50):
            x = tf.tanh(x @ w)
        return next(iter(data)) + x

    assert "MapDataset" in notes(tfplace.extract(f, ROWS))


# ---- Python functions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [tf.py_function, tf.numpy_function])
def test_a_python_function_is_named_and_its_ops_are_unknown(w, call):
    @tf.function
    def f(x):
        for _ in range(5):
            x = tf.tanh(x @ w)
        return tf.reduce_mean(call(lambda a: a * 2, [x], tf.float32))

    graph = tfplace.extract(f, ROWS)
    (body,) = graph.bodies
    assert body.graph is None
    assert rules(graph)[graph.op_types[body.op]] == RULE_UNREAD
    assert graph.op_names[body.op] in notes(graph)


def test_a_step_in_python_alone_is_refused():
    @tf.function
    def f(x):
        return tf.py_function(lambda a: a * 2, [x], tf.float32)

    with pytest.raises(InputError) as refused:
        tfplace.formulate(tfplace.extract(f, ROWS), TOPOLOGY)
    assert "EagerPyFunc" in refused.value.received


# ---- what is inlined or lowered --------------------------------------------------------------------------------------


def _compiled(w):
    inner = tf.function(lambda x: tf.nn.relu(x @ w), jit_compile=True)

    def f(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(inner(x))
        return tape.gradient(y, w)

    return f


LOWERED = {
    "jit_compile": _compiled,
    "map_fn": lambda w: lambda x: tf.map_fn(lambda row: tf.linalg.matvec(w, row), x),
    "vectorized_map": lambda w: lambda x: tf.vectorized_map(lambda row: tf.linalg.matvec(w, row), x),
    "cond": lambda w: lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x @ w, lambda: x),
    "switch_case": lambda w: lambda x: tf.switch_case(tf.size(x) % 2, [lambda: x @ w, lambda: x]),
    "while_loop": lambda w: lambda x: tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y @ w), [0, x])[1],
    "legacy scan": lambda w: (
        lambda x: keras.losses.CTC()(tf.ones([6, 3], tf.int32), (x @ w)[:, None] + tf.zeros([8, 1]))
    ),
}


@pytest.mark.parametrize("name", LOWERED)
def test_what_is_inlined_or_lowered_keeps_no_function(w, name):
    graph = tfplace.extract(tf.function(LOWERED[name](w)), ROWS)
    assert graph.bodies == ()


# ---- graph files -----------------------------------------------------------------------------------------------------


def test_a_call_that_asks_to_be_kept_is_inlined():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [6, 8], name="x")
        tf.identity(tf.function(lambda a: tf.tanh(a @ tf.transpose(a)) @ a)(x), name="y")
    graph_def = graph.as_graph_def()
    for function in graph_def.library.function:
        function.attr["_noinline"].b = True
    assert tfplace.extract(graph_def, fetches="y").bodies == ()
