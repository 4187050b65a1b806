"""What a measured step is given."""

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tfplace.errors import ApplyError
from tfplace.measurement.backends.inputs import step_inputs

v1 = tf.compat.v1


def _graph(*specs, shapes=None):
    @tf.function
    def step(*args):
        return [tf.identity(a) for a in args]

    return tfplace.extract(step, tuple(shapes or specs))


def _inputs(graph, batch=None, seed=0):
    return step_inputs(graph, graph.metagraph(), batch, seed)


FLOATS, INTS, TEXTS = (tf.TensorSpec((4, 3), t) for t in (tf.float32, tf.int32, tf.string))
HALVES, TRUTHS = tf.TensorSpec((5,), tf.bfloat16), tf.TensorSpec((), tf.bool)


def test_made_up_by_dtype_and_shape():
    inputs = list(_inputs(_graph(FLOATS, INTS, TEXTS, HALVES, TRUTHS)).values())
    assert [a.shape for a in inputs] == [(4, 3), (4, 3), (4, 3), (5,), ()]
    assert inputs[0].dtype == np.float32 and 0.2 < inputs[0].std() < 3
    assert inputs[1].dtype == np.int32 and set(inputs[1].ravel()) <= {0, 1}
    assert inputs[2].ravel().tolist() == [b""] * 12
    assert inputs[3].dtype == tf.bfloat16.as_numpy_dtype and inputs[4].dtype == bool


def test_made_up_again_by_the_same_seed():
    graph = _graph(FLOATS)
    (name,) = _inputs(graph)
    assert np.array_equal(_inputs(graph)[name], _inputs(graph)[name])
    assert not np.array_equal(_inputs(graph)[name], _inputs(graph, seed=1)[name])


def test_taken_from_the_batch_where_it_has_values():
    x, y = np.ones((4, 3)), tf.constant(np.full((4, 3), 7))
    floats, ints, texts = _inputs(_graph(FLOATS, INTS, TEXTS), (x, y, TEXTS)).values()
    assert floats.dtype == np.float32 and (floats == 1).all()
    assert ints.dtype == np.int32 and (ints == 7).all()
    assert texts[0, 0] == b""


def test_sparse_values_are_given_as_the_tensors_they_are_made_of():
    sparse = tf.sparse.from_dense(np.eye(3, dtype=np.float32))
    graph = tfplace.extract(tf.function(tf.sparse.to_dense), (sparse,))
    indices, values, shape = _inputs(graph, (sparse,)).values()
    assert indices.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert values.tolist() == [1, 1, 1] and shape.tolist() == [3, 3]


def test_taken_by_name():
    graph = _graph(FLOATS, INTS)
    first, second = _inputs(graph)
    assert (_inputs(graph, {second: np.full((4, 3), 9)})[second] == 9).all()
    assert _inputs(graph, {})[first].shape == (4, 3)


@pytest.mark.parametrize("batch", [(np.ones((4, 3)),), (np.ones((4, 3)),) * 3, {"nothing": np.ones(1)}])
def test_a_batch_of_another_length_is_refused(batch):
    with pytest.raises(ApplyError, match="one for each argument"):
        _inputs(_graph(FLOATS, INTS), batch)


def test_an_array_of_another_shape_is_refused():
    with pytest.raises(ApplyError, match=r"shape \(4, 4\).*expected shape \(4, 3\)"):
        _inputs(_graph(FLOATS), (np.ones((4, 4)),))


def _file_graph(build):
    with tf.Graph().as_default() as graph:
        build()
        return tfplace.extract(graph.as_graph_def(), fetches=("y",))


def test_an_open_shape_takes_that_of_the_batch_or_is_refused():
    graph = _file_graph(lambda: tf.identity(v1.placeholder(tf.float32, (None, 3), name="x"), name="y"))
    assert _inputs(graph, (np.ones((7, 3)),))["x"].shape == (7, 3)
    assert _inputs(graph, (tf.TensorSpec((6, 3)),))["x"].shape == (6, 3)
    with pytest.raises(ApplyError, match=r"'x' of shape \(None, 3\)"):
        _inputs(graph)


def test_defaults_are_kept_unless_given():
    def build():
        x = v1.placeholder(tf.float32, (2,), name="x")
        tf.add(x, v1.placeholder_with_default(tf.constant([1.0, 2.0]), (2,), name="d"), name="y")

    graph = _file_graph(build)
    assert set(_inputs(graph)) == {"x"}
    assert _inputs(graph, {"d": np.zeros(2)})["d"].tolist() == [0, 0]


def test_a_step_that_reads_an_iterator_is_refused():
    iterator = iter(tf.data.Dataset.range(3).repeat())

    @tf.function
    def step():
        return next(iterator) + 1

    with pytest.raises(ApplyError, match="a resource that is not a variable"):
        _inputs(tfplace.extract(step, ()))
