"""Wrong sources are refused with what was received, what was expected and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.extract import models
from tfplace.errors import SourceError


def test_missing_file(tmp_path):
    with pytest.raises(SourceError, match="does not exist"):
        tfplace.extract(tmp_path / "none.pb")


@pytest.mark.parametrize("content", [b"", b"not a graph at all \x00\xff\xfe", b"hello: 3"])
@pytest.mark.parametrize("suffix", [".pb", ".pbtxt", ".meta"])
def test_not_a_graph(tmp_path, content, suffix):
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="not a graph"):
        tfplace.extract(path)


def test_graph_without_ops(tmp_path):
    path = tmp_path / "empty.pb"
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.producer = 1000
    path.write_bytes(graph_def.SerializeToString())
    with pytest.raises(SourceError, match="without ops"):
        tfplace.extract(path)
    with pytest.raises(SourceError, match="without ops"):
        tfplace.extract(tf.compat.v1.GraphDef())


def test_unknown_op_is_named():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="NoSuchOp")
    with pytest.raises(SourceError, match="unknown op NoSuchOp"):
        tfplace.extract(graph_def)


def test_dangling_input_and_cycle():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="NoOp", input=["^b"])
    with pytest.raises(SourceError, match="not in the graph"):
        tfplace.extract(graph_def)
    graph_def.node.add(name="b", op="NoOp", input=["^a"])
    with pytest.raises(SourceError, match="cycle"):
        tfplace.extract(graph_def)


def test_unknown_fetch_lists_near_names():
    graph_def = tf.function(tf.exp).get_concrete_function(tf.TensorSpec([2])).graph.as_graph_def()
    with pytest.raises(SourceError, match="Exp"):
        tfplace.extract(graph_def, fetches=("Expo",))


def test_plain_callable_is_told_to_be_wrapped():
    with pytest.raises(SourceError, match=r"tf\.function"):
        tfplace.extract(lambda x: x, tf.TensorSpec([2]))


def test_keras_model_without_batch_unbuilt_uncompiled_eager():
    import keras

    model = models.keras_cnn()
    with pytest.raises(SourceError, match="without a batch"):
        tfplace.extract(model)
    unbuilt = keras.Sequential([keras.layers.Dense(3)])
    unbuilt.compile("sgd", "mse")
    with pytest.raises(SourceError, match="not built"):
        tfplace.extract(unbuilt, (np.zeros((2, 3), "float32"), np.zeros((2, 3), "float32")))
    uncompiled = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    with pytest.raises(SourceError, match="not compiled"):
        tfplace.extract(uncompiled, np.zeros((2, 3), "float32"), training=True)
    model.run_eagerly = True
    with pytest.raises(SourceError, match="run_eagerly"):
        tfplace.extract(model, models.cnn_batch())


def test_wrong_batch_is_reported_with_the_model_and_the_specs():
    with pytest.raises(SourceError, match="cannot take"):
        tfplace.extract(models.keras_cnn(), (np.zeros((2, 9, 9, 3), "float32"), np.zeros((3, 4, 5), "float32")))
    with pytest.raises(SourceError, match="arrays, tensors"):
        tfplace.extract(models.keras_cnn(), (object(), np.zeros(3)))


def test_a_graph_of_plain_arrays_has_no_metagraph():
    from tfplace.errors import GraphError
    from tfplace.testing import make_graph

    graph = make_graph({"a": ()})
    with pytest.raises(GraphError, match="plain arrays"):
        graph.metagraph()
