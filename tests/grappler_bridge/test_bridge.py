"""The bridge refuses what would crash Grappler, and does what it says to the rest."""

from __future__ import annotations

import pytest
import tensorflow as tf

from grappler_bridge.errors import GrapplerError, GrapplerInputError
from grappler_bridge.item import infer_properties
from grappler_bridge.optimize import optimize_graph


def graph_of(function, *specs):
    return tf.function(function).get_concrete_function(*specs).graph.as_graph_def()


@pytest.mark.parametrize("fetches", [[], ["absent"]])
def test_fetches_that_would_crash_are_refused(fetches):
    graph_def = graph_of(tf.exp, tf.TensorSpec([2]))
    with pytest.raises(ValueError, match="names of ops of the graph in the `train_op`"):
        optimize_graph(graph_def, fetches, ["pruning"])
    with pytest.raises(ValueError, match="names of ops of the graph in the `train_op`"):
        infer_properties(graph_def, fetches)


def test_functions_and_ops_that_are_not_there_are_refused():
    @tf.function
    def inner(x):
        return tf.exp(x)

    whole = graph_of(lambda x: tf.sin(inner(x)), tf.TensorSpec([2]))
    for spoil, said in (
        (lambda g: g.library.Clear(), "functions that are in the graph's library"),
        (lambda g: setattr(g.library.function[0].node_def[0], "op", "Frobnicate"), "Frobnicate"),
        (lambda g: setattr(g.node[-1], "op", "Frobnicate"), "Frobnicate"),
        (lambda g: g.node[-1].input.append("^nowhere"), "nowhere"),
        (lambda g: g.node.add().CopyFrom(g.node[0]), "two ops"),  # shape inference ends the process on it
    ):
        graph_def = tf.compat.v1.GraphDef()
        graph_def.CopyFrom(whole)
        spoil(graph_def)
        for ask in (infer_properties, lambda g, fetches: optimize_graph(g, fetches, ["function"])):
            with pytest.raises(GrapplerInputError, match=said):
                ask(graph_def, ["Identity"])


def test_errors_of_native_code_are_no_raw_ones():
    graph_def = graph_of(tf.exp, tf.TensorSpec([2]))
    graph_def.node[-1].input[0] = "Exp:5"
    with pytest.raises(GrapplerError, match="Grappler failed to"):
        infer_properties(graph_def, ["Identity"])


def test_calls_are_inlined_and_what_is_not_fetched_is_dropped():
    @tf.function
    def inner(x):
        return tf.exp(x)

    graph_def = graph_of(lambda x: (inner(x), tf.sin(x)), tf.TensorSpec([2]))
    flat = optimize_graph(graph_def, ["x", "Identity"], ["function", "pruning"])
    types = {node.op for node in flat.node}
    assert "Exp" in types
    assert not {"Sin", "PartitionedCall", "StatefulPartitionedCall"} & types


def test_a_graph_that_comes_back_without_its_fetches_is_no_answer(monkeypatch):
    graph_def = graph_of(tf.exp, tf.TensorSpec([2]))
    monkeypatch.setattr(
        "grappler_bridge.optimize.tf_optimizer.OptimizeGraph", lambda *_, **__: tf.compat.v1.GraphDef()
    )  # as of 2 GiB
    with pytest.raises(GrapplerError, match="lost 1 ops that it was told to keep, such as 'Identity', by constfold"):
        optimize_graph(graph_def, ["Identity"], ["constfold"])


def test_what_is_kept_is_not_folded():
    graph_def = graph_of(lambda x: x + tf.exp(tf.ones([2])), tf.TensorSpec([2]))
    exp = next(node.name for node in graph_def.node if node.op == "Exp")
    for kept, wanted in (((), False), ((exp,), True)):
        folded = optimize_graph(graph_def, ["x", "Identity"], ["constfold"], kept=kept)
        assert ("Exp" in {node.op for node in folded.node}) is wanted
    with pytest.raises(GrapplerInputError, match="names of ops of the graph"):
        optimize_graph(graph_def, ["Identity"], ["constfold"], kept=["absent"])


def test_shapes_of_placeholders_are_taken_at_their_word_and_open_ones_stay_open():
    for shape, wanted in (([3, 4], (3, 5)), ([None, 4], (-1, 5))):
        graph_def = graph_of(lambda x: tf.matmul(x, tf.ones([4, 5])), tf.TensorSpec(shape))
        matmul = next(node.name for node in graph_def.node if node.op == "MatMul")
        properties = infer_properties(graph_def, [matmul])
        assert properties[matmul][0].shape == wanted
        assert properties[matmul][0].dtype == tf.float32


def test_values_known_before_the_run_are_told():
    graph_def = graph_of(lambda x: tf.reshape(x, [-1, 2]), tf.TensorSpec([4]))
    constant = next(node.name for node in graph_def.node if node.op == "Const")
    fetches = [node.name for node in graph_def.node if node.op == "Reshape"]
    assert infer_properties(graph_def, fetches)[constant][0].value == (-1, 2)
