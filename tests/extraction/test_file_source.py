"""Files are read in a process of their own, whose end is an error and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import tfplace
from tests.extraction import children
from tfplace.errors import SourceError, UnknownOpsError
from tfplace.extraction import file_source
from tfplace.extraction.file_source import FileReader


@pytest.fixture
def own_process(monkeypatch):
    """One that is started anew for each file, and not that of the session, which is as good where it goes on."""
    monkeypatch.setattr(file_source, "FileReader", file_source.FileReader.not_shared)


@pytest.fixture
def path(tmp_path):
    return write(tmp_path, tf.exp)


def write(folder, function):
    graph = tf.function(function).get_concrete_function(tf.TensorSpec([2, 3])).graph
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return folder / "graph.pb"


@pytest.mark.usefixtures("own_process")
def test_a_crash_of_native_code_is_a_source_error(path, monkeypatch):
    monkeypatch.setattr(file_source, "serve", children.crash)
    with pytest.raises(SourceError) as caught:
        tfplace.extract(path)
    assert "graph.pb" in caught.value.received and "by signal 6: F0000 so it is" in caught.value.received
    assert "damaged" in caught.value.hint


@pytest.mark.usefixtures("own_process")
def test_after_a_crash_the_next_file_is_read(path, monkeypatch):
    with FileReader() as reader:
        with monkeypatch.context() as patched:
            patched.setattr(file_source, "serve", children.crash)
            with pytest.raises(SourceError):
                reader.read(path)
        assert "Exp" in reader.read(path).op_types


@pytest.mark.usefixtures("own_process")
def test_a_mistake_of_ours_is_not_blamed_on_the_file(path, monkeypatch):
    monkeypatch.setattr(file_source, "serve", children.stumble)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        tfplace.extract(path)
    monkeypatch.setattr(file_source, "serve", children.not_start)
    with pytest.raises(RuntimeError, match=r"did not start.*no such library"):
        tfplace.extract(path)


def test_a_file_is_placed_without_tensorflow_here(path):
    code = """
import sys
from tfplace.cli import main
assert main(["place", f"--model={sys.argv[1]}", "--topology=2xP100", "--placer=single", "--budget=3 evaluations"]) == 0
assert not {"tensorflow", "keras"} & {*sys.modules}
"""
    subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)


def test_the_graph_is_the_one_that_is_read_here(path):
    graph = tfplace.extract(path, {"x": tf.ones([2, 3])})
    here = graph.origin.program.metagraph({"Exp": "GPU:1"})
    assert graph.metagraph({"Exp": "GPU:1"}) == here
    assert here.graph_def.node[1].device == "/device:GPU:1"


def test_a_file_that_changed_is_not_run(path):
    graph = tfplace.extract(path)
    placement = tfplace.place(graph, "2xP100", placer="single", budget=2, progress=False)
    write(path.parent, tf.sin)
    with pytest.raises(SourceError) as caught:
        tfplace.apply(graph, placement, devices={"GPU:0": "CPU:0", "GPU:1": "CPU:0"})
    assert "changed" in caught.value.received


def test_ops_that_only_this_process_knows(path, monkeypatch):
    def unknown(self, path, **options):
        raise UnknownOpsError(["Exp"])

    monkeypatch.setattr(FileReader, "read", unknown)
    assert "Exp" in tfplace.extract(path).op_types
    monkeypatch.setattr(file_source, "_known_here", lambda ops: False)
    with pytest.raises(UnknownOpsError) as caught:
        tfplace.extract(path)
    assert caught.value.ops == ("Exp",)


@pytest.fixture
def saved(tmp_path):
    module = tf.Module()
    module.v = tf.Variable(tf.ones([3]))
    module.f = tf.function(lambda x: {"y": x + module.v}, input_signature=[tf.TensorSpec([None, 3])])
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=module.f)
    return tmp_path / "saved"


def cut_off(saved):
    whole = (saved / "saved_model.pb").read_bytes()
    (saved / "saved_model.pb").write_bytes(whole[: len(whole) // 2])


def change(saved, damage):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    model = SavedModel.FromString((saved / "saved_model.pb").read_bytes())
    damage(model.meta_graphs[0])
    (saved / "saved_model.pb").write_bytes(model.SerializeToString())


def without_attribute(saved):
    change(saved, lambda meta: meta.graph_def.library.function[0].node_def[0].attr.clear())


def without_objects(saved):
    change(saved, lambda meta: meta.object_graph_def.nodes[0].children[0].__setattr__("node_id", 99))


def without_variables(saved):
    next((saved / "variables").glob("*.index")).unlink()


@pytest.mark.parametrize("damage", [cut_off, without_attribute, without_objects, without_variables])
def test_damaged_saved_models(saved, damage):
    damage(saved)
    with pytest.raises(SourceError) as caught:
        tfplace.extract(saved)
    assert caught.value.hint


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="of Linux")
def test_a_file_that_cannot_be_read():
    with pytest.raises(SourceError) as caught:
        tfplace.extract("/proc/self/mem")
    assert "/proc/self/mem" in caught.value.received and "can be read" in caught.value.expected


def test_deeply_nested_text(tmp_path):
    path = Path(tmp_path / "deep.pbtxt")
    path.write_text("node { attr { value { func { " + "attr { value { func { " * 5000)
    with pytest.raises(SourceError) as caught:
        tfplace.extract(path)
    assert "not a graph" in caught.value.received
