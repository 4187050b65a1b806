import keras
import pytest
import tensorflow as tf

import tfplace
from tfplace.cli import source
from tfplace.cli.flags import ReadFlags
from tfplace.cli.reading import read_graph
from tfplace.errors import SourceError, UnknownNameError
from tfplace.extraction.keras_model import untrained


def test_zoo_model_takes_batch_and_parameters():
    found = source.find("rnnlm_2")(3, {"steps": "2", "units": "4", "vocabulary": "9", "unroll": "false"})
    assert found.source.name == "rnnlm_2"
    assert tuple(found.batch[0].shape) == (3, 2)


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "from types import SimpleNamespace\n"
        "def pair(batch=1, scale=1.0): return ('a source', [batch, scale])\n"
        "def alone(): return 'a source'\n"
        "def named(): return SimpleNamespace(model='a model', batch='a batch')\n"
        "def anything(**kw): return ('kw', kw)\n"
        "def needs(size): return size\n"
        "def fails(size): raise ValueError('too small')\n"
        "def leaves(): raise SystemExit(3)\n"
    )
    (tmp_path / "leaving_models.py").write_text("raise SystemExit('not today')\n")
    (tmp_path / "broken_models.py").write_text("nothing\n")
    (tmp_path / "lost_models.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("user_module")
def test_user_functions_give_a_pair_a_source_or_a_zoo_like_object():
    assert source.find("my_models:pair")(8, {"scale": "0.5"}) == source.Source("a source", [8, 0.5])
    assert source.find("my_models:alone")(None, {}) == source.Source("a source")
    assert source.find("my_models:named")(None, {}) == source.Source("a model", "a batch")
    assert source.find("my_models:anything")(None, {"x": "yes"}).batch == {"x": "yes"}
    with pytest.raises(SourceError, match=r"has pair, alone"):
        source.find("my_models:other")(None, {})


@pytest.mark.usefixtures("user_module")
@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("my_models:needs", {}, r"missing a required argument: 'size'.*--param=NAME=VALUE"),
        ("my_models:fails", {"size": "3"}, r"size=3, which failed: ValueError: too small.*my_models.py:7"),
        ("my_models:leaves", {}, r"which failed: SystemExit: 3.*my_models.py:8"),
        ("leaving_models:build", {}, r"fails when it is imported: SystemExit: not today"),
        ("broken_models:build", {}, r"fails when it is imported: NameError: name 'nothing'"),
        ("lost_models:build", {}, r"fails when it is imported: ModuleNotFoundError: .*no_such_module"),
        ("builtins:dict", {}, "a function written in Python"),
        ("rnnlm_2", {"layers": "two"}, r"layers='two', which failed: TypeError"),
        ("tfplace_zoo.families:member", {}, r"missing a required argument: 'family'"),
        ("tfplace_zoo.families:member", {"family": "ptb", "index": "32"}, r"which failed: ValueError"),
        ("tfplace_zoo.families:member", {"family": "foo", "index": "0"}, r"which failed: ValueError"),
    ],
)
def test_what_builders_raise_is_bad_input(name, params, message):
    with pytest.raises(SourceError, match=message) as caught:
        source.find(name)(None, params)
    assert caught.value.__cause__ is not None


def test_batch_fills_a_saved_models_open_dimension(tmp_path):
    module = tf.Module()
    module.step = tf.function(lambda x: {"y": x + 1.0}, input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=module.step)
    assert _shapes(tmp_path / "saved", batch=5)["x"] == (5, 3)


def test_batch_fills_a_graph_files_placeholders(tmp_path):
    with tf.Graph().as_default() as graph:
        tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        tf.compat.v1.placeholder(tf.float32, [2], "fixed")
        tf.io.write_graph(graph.as_graph_def(), str(tmp_path), "graph.pb", as_text=False)
    assert _shapes(tmp_path / "graph.pb", batch=5) == {"x": (5, 3), "fixed": (2,)}


def _shapes(path, batch):
    found = source.find(str(path))(batch, {})
    graph = read_graph(found, ReadFlags(), pytest.fail)
    return {name: graph.tensor_shape[graph.op_tensors[v]] for v, name in enumerate(graph.op_names)}


@pytest.fixture(params=["saved", "graph.pb"])
def sentences(request, tmp_path):
    """A file with inputs "words" [batch, length, 3] and "weights" [batch], and one that no fetch needs."""
    path = tmp_path / request.param
    if request.param == "saved":
        module = tf.Module()
        specs = [tf.TensorSpec([None, None, 3], name="words"), tf.TensorSpec([None], name="weights")]
        module.step = tf.function(lambda words, weights: {"y": tf.exp(words) * weights[:, None, None]}, specs)
        tf.saved_model.save(module, str(path), signatures=module.step)
    else:
        with tf.Graph().as_default() as graph:
            words = tf.compat.v1.placeholder(tf.float32, [None, None, 3], "words")
            weights = tf.compat.v1.placeholder(tf.float32, None, "weights")
            train_op = tf.multiply(tf.exp(words), weights, name="y")
            tf.compat.v1.placeholder(tf.float32, [None, None], "unused")
            graph.add_to_collection("train_op", train_op)
            tf.compat.v1.train.export_meta_graph(str(path))
    return path


def read(path, shapes, batch):
    return read_graph(source.find(str(path), shapes)(batch, {}), ReadFlags(), lambda text: None)


def shape_of(graph, op_type):
    return graph.tensor_shape[graph.op_tensors[graph.op_types.index(op_type)]]


def test_dimensions_that_the_batch_does_not_fill_are_asked_for(sentences):
    with pytest.raises(SourceError) as asked:
        read(sentences, {}, 2)
    assert "words 2,?,3" in asked.value.received
    assert "--shape=words=2,DIM,3" in asked.value.expected
    assert "unused" not in asked.value.received


def test_shapes_by_name_and_by_position(sentences):
    names = {"words": (2, 7, 3), "weights": (2,) if sentences.is_dir() else ()}
    graph = read(sentences, names, None)
    assert shape_of(graph, "Exp") == (2, 7, 3)
    assert {guess.op for guess in graph.unknown} <= {"unused"}
    inputs = ["words", "weights", "unused"]
    if sentences.is_dir():
        signature = tf.saved_model.load(str(sentences)).signatures["serving_default"]
        inputs = sorted(signature.structured_input_signature[1])  # keywords have no order of their own
    order = {str(inputs.index(name)): shape for name, shape in names.items()}
    assert read(sentences, order, None).fingerprint == graph.fingerprint
    assert shape_of(read(sentences, names, 5), "Exp") == (2, 7, 3)


@pytest.mark.parametrize(
    ("shapes", "error", "received"),
    [
        ({"word": (2, 7, 3)}, UnknownNameError, "'word'"),
        ({"9": (2, 7, 3)}, UnknownNameError, "'9'"),
        ({"words": (2, 7, 4), "weights": (2,)}, SourceError, "(2, 7, 4)"),
    ],
)
def test_shapes_that_no_input_has(sentences, shapes, error, received):
    with pytest.raises(error) as refused:
        read(sentences, shapes, 2)
    assert received in refused.value.received


@pytest.mark.parametrize("model", ["rnnlm_2", "my_models:pair"])
def test_shapes_are_for_files(model):
    with pytest.raises(SourceError) as refused:
        source.find(model, {"x": (2,)})
    assert "--shape" in refused.value.received


def test_a_saved_keras_model_needs_a_function_that_loads_it(tmp_path):
    with pytest.raises(SourceError, match=r"lost\.keras', which does not exist"):
        source.find(str(tmp_path / "lost.keras"))
    with pytest.raises(SourceError, match=r"lost\.keras', which does not exist"):
        source.find("lost.keras")
    (tmp_path / "net.keras").touch()
    with pytest.raises(SourceError, match=r"a saved Keras model.*--model=net:build.*load_model\('.*net.keras'\)"):
        source.find(str(tmp_path / "net.keras"))


@pytest.mark.parametrize("inference", [True, False])
def test_a_model_that_does_not_train_is_read_as_inference_and_that_is_told(inference):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="plain")
    told = []
    batch = tf.TensorSpec([4, 3], tf.float32)
    graph = read_graph(source.Source(model, batch), ReadFlags(inference=inference), told.append)
    assert "MatMul" in graph.op_types
    assert told == ([] if inference else [untrained(model)])
    with pytest.warns(UserWarning, match="model 'plain' is not compiled, so tfplace reads its inference"):
        tfplace.extract(model, batch)
