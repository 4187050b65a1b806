"""Graph files run in a session with their ops placed."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.placing import placement_on, random_placement
from tfplace.errors import ApplyError
from tfplace.execution.state import SessionState
from tfplace.group.colocation import colocate

DEVICES = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
v1 = tf.compat.v1
X = np.random.default_rng(0).random((4, 3), np.float32)


def _build():
    """A TF1 training graph with one reference and one resource variable and a while loop."""
    x = v1.placeholder(tf.float32, (None, 3), name="x")
    w = v1.get_variable("w", (3, 2), use_resource=False, initializer=v1.constant_initializer(0.3))
    b = v1.get_variable("b", (2,), use_resource=True, initializer=v1.constant_initializer(0.1))
    y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y) + b), (0, tf.matmul(x, w) + b))[1]
    loss = tf.reduce_mean(tf.square(y - 1.0), name="loss")
    step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
    v1.add_to_collection("train_op", step)
    return x, loss, step


@pytest.fixture(scope="module")
def plain_losses():
    """Losses of six steps of the same graph in a session of its own."""
    with tf.Graph().as_default(), v1.Session() as session:
        x, loss, step = _build()
        session.run(v1.global_variables_initializer())
        return [session.run([loss, step], {x: X})[0] for _ in range(6)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "model.meta"
    with tf.Graph().as_default():
        _build()
        v1.train.export_meta_graph(str(path))
    return tfplace.extract(str(path), fetches=("loss", "train"))


def test_trains_as_the_plain_session_does_across_placements(graph, plain_losses):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES, seed=0))
    losses = [placed({"x": X})["loss:0"] for _ in range(3)]
    placed.replace(random_placement(graph, DEVICES, seed=1))
    losses += [placed({"x:0": X})["loss:0"] for _ in range(2)]
    placed.restore()
    placed.replace(random_placement(graph, DEVICES, seed=2))
    losses.append(placed({"x": X})["loss:0"])
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)


def test_a_compiled_step_trains_as_the_plain_session_does(graph, plain_losses):
    placed = tfplace.apply(graph, placement_on(graph, DEVICES, np.zeros(colocate(graph).num_units, int)), compile="xla")
    losses = [placed({"x": X})["loss:0"] for _ in range(3)]
    placed.replace(random_placement(graph, DEVICES, seed=1))
    losses += [placed({"x": X})["loss:0"] for _ in range(3)]
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
    compiled = [op for cluster in placed.clusters.clusters for op in cluster.ops]
    assert all(placed.actual().devices[op] == placed.placement.devices[op] for op in compiled)


def test_phases_change_no_numbers_and_go_again(graph, plain_losses):
    free = random_placement(graph, DEVICES, seed=0)
    phases = np.ones(graph.num_ops, np.int32)
    phases[_needed_for(graph, "loss")] = 0
    placed = tfplace.apply(graph, replace(free, phases=phases, order="by hand"))
    losses = [placed({"x": X})["loss:0"] for _ in range(3)]
    placed.replace(free)
    losses += [placed({"x": X})["loss:0"] for _ in range(3)]
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)


def _needed_for(graph, name):
    needed, size = {graph.index[name]}, 0
    while size < len(needed):
        size = len(needed)
        needed |= {u for u, v in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True) if v in needed}
    return sorted(needed)


def test_ops_ran_where_asked(graph):
    placement = random_placement(graph, DEVICES, seed=3)
    placed = tfplace.apply(graph, placement)
    with pytest.raises(ApplyError, match="has not run yet"):
        placed.actual()
    placed({"x": X})
    actual = placed.actual()
    assert len(actual.counts) == 4
    assert all(m.reason.startswith("control flow") for m in actual.moved)
    assert "x" not in actual.devices


def test_unknown_feeds_are_refused(graph):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    with pytest.raises(ApplyError, match="placeholders of the graph: x"):
        placed({"nothing": X})


def test_values_can_be_given_where_the_file_has_no_initializers():
    with tf.Graph().as_default() as g:
        x = v1.placeholder(tf.float32, (None, 3), name="x")
        w = v1.get_variable("w", (3, 2), use_resource=True)
        tf.identity(tf.matmul(x, w), name="y")
        graph = tfplace.extract(g.as_graph_def(), fetches=("y",))
    placed = tfplace.apply(graph, placement_on(graph, DEVICES, np.full(colocate(graph).num_units, 2)))
    with pytest.raises(ApplyError, match="load"):
        placed({"x": X})
    placed.load({"w": np.ones((3, 2), np.float32)})
    np.testing.assert_allclose(placed({"x": X})["y:0"], X.sum(1, keepdims=True).repeat(2, 1), rtol=1e-6)
    assert set(placed.state()) == {"w"}
    with pytest.raises(ApplyError, match="Near names: w"):
        placed.load({"ww": X})


def test_a_placement_that_fails_keeps_what_was_trained(graph, plain_losses, monkeypatch):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES, seed=0))
    losses = [placed({"x": X})["loss:0"] for _ in range(3)]

    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "the device is full")

    monkeypatch.setattr(SessionState, "write", full)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        placed.replace(random_placement(graph, DEVICES, seed=1))
    monkeypatch.undo()
    losses.append(placed({"x": X})["loss:0"])
    assert len(placed.actual().counts) == 4
    placed.replace(random_placement(graph, DEVICES, seed=2))
    losses += [placed({"x": X})["loss:0"] for _ in range(2)]
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)


def test_values_loaded_after_restore_are_those_of_the_next_placement(graph, plain_losses):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES, seed=0))
    before = placed.state()
    placed({"x": X})
    placed.restore()
    placed.load({"w": before["w"]})
    placed.load({name: value for name, value in before.items() if name != "w"})
    placed.replace(random_placement(graph, DEVICES, seed=1))
    np.testing.assert_allclose(placed({"x": X})["loss:0"], plain_losses[0], rtol=1e-5)


def test_saved_model_signature_runs_placed(tmp_path):
    module = tf.Module()
    module.w = tf.Variable(np.eye(3, dtype=np.float32) * 2)
    spec = tf.TensorSpec((None, 3), tf.float32, name="x")
    module.f = tf.function(lambda x: {"y": tf.nn.relu(x @ module.w)}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path), signatures=module.f)
    graph = tfplace.extract(str(tmp_path))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES))
    np.testing.assert_allclose(placed(x=tf.constant(X))["y"], 2 * X, rtol=1e-6)
    assert len(placed.actual().counts) >= 2


def test_a_call_says_what_is_wrong_with_what_it_is_given(graph):
    placed = tfplace.apply(graph, random_placement(graph, DEVICES, seed=0))
    assert placed(x=X)["loss:0"] > 0
    for given, message in (
        ((), r"a call without 'x'; expected values for 'x'"),
        ((X,), r"ndarray as the inputs of a graph file's step.*placed\({'x': ...}\)"),
        (({"x": X[:, :2]},), r"an array of shape \(4, 2\) for 'x'; expected shape \(None, 3\)"),
        (({"y": X},), r"a feed for 'y'"),
        (({"x": [["much"]]},), r"list for 'x' \(could not convert string.*expected float32"),
    ):
        with pytest.raises(ApplyError, match=message):
            placed(*given)


def test_a_lookup_table_is_told_from_a_variable_without_a_value(tmp_path):
    path = tmp_path / "table.meta"
    with tf.Graph().as_default():
        words = v1.placeholder(tf.string, (None,), name="words")
        scale = v1.get_variable("scale", (), tf.int64, use_resource=False, initializer=v1.constant_initializer(2))
        pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
        tf.multiply(tf.lookup.StaticHashTable(pairs, -1).lookup(words), scale, name="found")
        v1.train.export_meta_graph(str(path))
    graph = tfplace.extract(str(path), fetches=("found",))
    placed = tfplace.apply(graph, random_placement(graph, DEVICES, seed=0))
    with pytest.raises(ApplyError, match=r"something else to initialize than variables \(.*[Tt]able.*Lookup tables"):
        placed({"words": ["a"]})
