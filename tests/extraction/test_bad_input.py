"""Wrong sources are refused with what was received, what was expected and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.extraction import models
from tfplace.errors import SourceError


@pytest.mark.parametrize("given", [(64, 3), (2, 4), (2, 3, 1)])
def test_a_batch_that_the_program_cannot_take(given):
    concrete = tf.function(tf.exp).get_concrete_function(tf.TensorSpec([2, 3]))
    with tf.Graph().as_default() as graph:
        tf.exp(tf.compat.v1.placeholder(tf.float32, [2, 3], name="x"))
    batch = tf.TensorSpec(given)
    for source, tensors in ((concrete, batch), (graph.as_graph_def(), {"x": batch})):
        with pytest.raises(SourceError, match=r"a batch with shape .* for input 'x'; expected shape \(2, 3\)"):
            tfplace.extract(source, tensors)
        assert tfplace.extract(source).tensor_bytes.max() == 24


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


def test_keras_model_without_batch_uncompiled_eager():
    import keras

    model = models.keras_cnn()
    with pytest.raises(SourceError, match="without a batch"):
        tfplace.extract(model)
    uncompiled = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    with pytest.raises(SourceError, match="not compiled"):
        tfplace.extract(uncompiled, np.zeros((2, 3), "float32"), training=True)
    model.run_eagerly = True
    with pytest.raises(SourceError, match="run_eagerly"):
        tfplace.extract(model, models.cnn_batch())


def test_wrong_batch_is_reported_with_the_model_and_the_specs():
    with pytest.raises(SourceError, match=r"for a batch of specs .* which fails"):
        tfplace.extract(models.keras_cnn(), (np.zeros((2, 9, 9, 3), "float32"), np.zeros((3, 4, 5), "float32")))
    with pytest.raises(SourceError, match="arrays, tensors"):
        tfplace.extract(models.keras_cnn(), (object(), np.zeros(3)))
    with pytest.raises(SourceError, match=r"a dataset as the batch.*element_spec"):
        tfplace.extract(models.keras_cnn(), tf.data.Dataset.range(3))


def _file():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, name="x")
        tf.multiply(x, tf.compat.v1.placeholder(tf.float32, [None], name="scale"), name="y")
    return graph.as_graph_def()


def test_batches_of_graph_files_are_told_by_name():
    with pytest.raises(SourceError, match=r"'scales'.*placeholders of the graph: x, scale\. Near names: scale"):
        tfplace.extract(_file(), {"scales": tf.TensorSpec([3])})
    with pytest.raises(SourceError, match="an array or"):
        tfplace.extract(_file(), {"x": tf.sparse.eye(3)})
    with pytest.raises(SourceError, match="an array or"):
        tfplace.extract(_file(), {"x": None})


def test_numbers_and_open_ranks_in_the_batch_of_a_graph_file():
    graph = tfplace.extract(_file(), {"x": 2.0, "scale": np.ones(5, "float32")})
    assert graph.tensor_shape[graph.op_tensors[graph.index["y"]]] == (5,)
    open_rank = tfplace.extract(_file(), {"x": np.ones(3, "float32"), "scale:0": tf.TensorSpec(None)})
    assert open_rank.tensor_shape[open_rank.op_tensors[open_rank.index["x"]]] == (3,)


def _saved_model(path):
    module = tf.Module()
    spec = tf.TensorSpec([None, 3])
    module.f = tf.function(lambda zeta, alpha: {"y": zeta + alpha}, input_signature=[spec, spec])
    tf.saved_model.save(module, str(path), signatures=module.f)
    return path


def test_batches_of_signatures_are_told_by_name(tmp_path):
    path = _saved_model(tmp_path)
    arrays = {name: np.zeros((size, 3), "float32") for name, size in (("alpha", 1), ("zeta", 7))}
    graph = tfplace.extract(path, {"zeta": arrays["zeta"], "alpha": arrays["alpha"]})
    shapes = {graph.op_names[v]: graph.tensor_shape[graph.op_tensors[v]] for v in range(graph.num_ops)}
    assert (shapes["zeta"], shapes["alpha"]) == ((7, 3), (1, 3))
    with pytest.raises(SourceError, match=r"'zeta', 'alphas'.*its inputs: .*Near 'alphas': alpha"):
        tfplace.extract(path, {"zeta": arrays["zeta"], "alphas": arrays["alpha"]})
    with pytest.raises(SourceError, match="its inputs: alpha, zeta"):
        tfplace.extract(path, {"zeta": arrays["zeta"]})
    with pytest.raises(SourceError, match=r"a batch of 1 tensors.*each of the 2 inputs"):
        tfplace.extract(path, arrays["zeta"])


def test_a_batch_of_another_number_of_tensors_is_refused():
    concrete = tf.function(lambda x, y: x + y).get_concrete_function(tf.TensorSpec([None]), tf.TensorSpec([None]))
    with pytest.raises(SourceError, match=r"a batch of 3 tensors.*each of the 2 inputs: x, y"):
        tfplace.extract(concrete, (np.ones(2),) * 3)


def test_what_grappler_refuses_is_a_source_error():
    twice = tf.compat.v1.GraphDef()
    for _ in range(2):
        twice.node.add(name="a", op="NoOp")
    with pytest.raises(SourceError, match="'a'"):
        tfplace.extract(twice)
    with pytest.raises(SourceError, match="Grappler failed"):
        tfplace.extract(_loop_that_nothing_enters())


def test_a_long_chain_of_constants_is_computed():
    with tf.Graph().as_default() as graph:
        x = tf.constant([1.0, 2.0])
        for _ in range(2000):
            x = -x
        tf.add(tf.compat.v1.placeholder(tf.float32, [2]), x, name="out")
    assert sorted(tfplace.extract(graph.as_graph_def()).op_types) == ["AddV2", "Const", "Placeholder"]


def _loop_that_nothing_enters():
    graph_def = tf.compat.v1.GraphDef()
    merge = graph_def.node.add(name="merge", op="Merge", input=["next", "next"])
    merge.attr["N"].i = 2
    graph_def.node.add(name="next", op="NextIteration", input=["merge"])
    graph_def.node.add(name="exit", op="Exit", input=["merge"])
    for node in graph_def.node:
        node.attr["T"].type = tf.float32.as_datatype_enum
    return graph_def


def test_a_graph_of_plain_arrays_has_no_metagraph():
    from tfplace.errors import GraphError
    from tfplace.testing import make_graph

    graph = make_graph({"a": ()})
    with pytest.raises(GraphError, match="plain arrays"):
        graph.metagraph()


def test_variables_are_used_and_not_given():
    variable = tf.Variable(tf.ones([2]))
    doubled = tfplace.extract(tf.function(lambda value: value * 2), (variable,))
    assert doubled.num_ops
    with pytest.raises(SourceError, match=r"a tf\.Variable as an argument.*'assign'.*captures from outside"):
        tfplace.extract(tf.function(lambda value: value.assign(value * 2)), (variable,))
