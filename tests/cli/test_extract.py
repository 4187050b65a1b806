import json
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from tests.cli.refusing import assert_refused
from tfplace import OpGraph, Placement, formulate
from tfplace.cli import BAD_INPUT, PLACED, main

SMALL = ["rnnlm_2", "--batch=2", *(f"--param={p}" for p in ("steps=2", "units=8", "vocabulary=50", "layers=1"))]
QUICK = ["--placer=heft", "--budget=5 evaluations", "--quiet"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory, logical_cpus):  # which must be made before TensorFlow starts
    path = tmp_path_factory.mktemp("extracted") / "small.npz"
    keras.utils.clear_session()
    assert main(["extract", *SMALL, f"--output={path}", "--quiet"]) == PLACED
    return path


def test_lists_the_layers_that_rules_may_name(archive, capfd):
    layers = list(OpGraph.load(archive).layers)
    assert main(["extract", str(archive), "--layers", "--quiet"]) == PLACED
    said = capfd.readouterr().out
    assert len(layers) > 2
    assert all(name in said for name in layers)


def test_places_whole_layers_and_tells_where_each_is(archive, capfd):
    first, second, *rest = OpGraph.load(archive).layers
    rules = [
        f"--pin=layer:{first}=GPU:0",
        f"--forbid=layer:{second}=GPU:0,CPU:0",
        f"--colocate=layer:{rest[-1]},layer:{second}",
    ]
    words = ["place", f"--model={archive}", "--topology=2xP100", *QUICK, *rules]
    assert main([*words, "--layers"]) == PLACED
    assert "kept for gradients" in capfd.readouterr().out
    assert main([*words, "--json"]) == PLACED
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)["simulated"]["layers"]}
    assert [*rows] == [first, second, *rest]
    assert [*rows[first]["devices"]] == ["GPU:0"]
    assert [*rows[second]["devices"]] == [*rows[rest[-1]]["devices"]] == ["GPU:1"]


def test_a_layer_that_is_not_there(archive, capfd):
    rules = ["--pin=layer:lstm_9=GPU:0"]
    assert main(["place", f"--model={archive}", "--topology=2xP100", *QUICK, *rules]) == BAD_INPUT
    said = capfd.readouterr().err
    assert "matches no layer" in said
    assert "lstm_0" in said


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        ([], {"received": "with 0 models"}),
        (["rnnlm_2", "rnnlm_4", "--output=x.npz"], {"received": "with 2 models"}),
        (["rnnlm_2"], {"received": "no --output"}),
        (["workload.json", "--output=x.npz"], {"received": "for `tfplace extract`"}),
        (["rnnlm_2", "--output=x.json"], {"expected": "ends in .npz or .meta"}),
        (["rnnlm_2", "--output=missing/x.npz"], {"expected": "missing does not"}),
        (["rnnlm_3", "--output=x.npz"], {"hint": "Did you mean 'rnnlm_"}),
        (["rnnlm_2", "--output=x.npz", "--shape=x"], {"expected": "--shape=INPUT=DIM,DIM"}),
        (["rnnlm_2", "--output=x.npz", "--shape=x=2,?"], {"received": "--shape=x=2,?"}),
        (["rnnlm_2", "--output=x.npz", "--shape=x=2,()"], {"received": "--shape=x=2,()"}),
    ],
)
def test_bad_input(argv, fields):
    assert_refused(["extract", *argv], **fields)


def test_it_says_what_it_wrote(tmp_path, capsys):
    keras.utils.clear_session()
    assert main(["extract", *SMALL, f"--output={tmp_path / 'x.meta'}", "--inference"]) == PLACED
    meta = tf.compat.v1.MetaGraphDef.FromString((tmp_path / "x.meta").read_bytes())
    text = capsys.readouterr().out
    assert {"MatMul", "BiasAdd"} <= {node.op for node in meta.graph_def.node}
    assert f"{len(meta.graph_def.node) - 1} ops" in text  # and one node that groups the step's results
    assert "x.meta (" in text


def test_the_batch_fills_the_signature_that_is_fetched(tmp_path, capsys):
    module = tf.Module()
    module.serve = tf.function(lambda x: {"y": x + 1.0}, input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
    module.train = tf.function(lambda z: {"y": z * z}, input_signature=[tf.TensorSpec([None, 5], tf.float32, "z")])
    signatures = {"serving_default": module.serve, "train": module.train}
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=signatures)
    out = tmp_path / "train.npz"
    argv = ["extract", str(tmp_path / "saved"), "--fetch=train", "--batch=8", f"--output={out}", "--quiet"]
    assert main(argv) == PLACED, capsys.readouterr().err
    graph = OpGraph.load(out)
    assert not graph.unknown
    assert 8 * 5 * 4 in graph.tensor_bytes


def test_an_extracted_graph_is_placed_as_its_model_is(archive, tmp_path, capfd):
    keras.utils.clear_session()
    files = tmp_path / "a", tmp_path / "b"
    assert (
        main(["place", f"--model={SMALL[0]}", *SMALL[1:], "--topology=2xP100", f"--out={files[0]}", *QUICK]) == PLACED
    )
    capfd.readouterr()
    assert main(["place", f"--model={archive}", "--topology=2xP100", f"--out={files[1]}", "--json", *QUICK]) == PLACED
    assert set(json.loads(capfd.readouterr().out)["files"]) == {
        "placement",
        "trace",
        "topology",
        "problem",
        "search",
        "report",
    }
    a, b = (Placement.from_json((f / "placement.json").read_text()) for f in files)
    assert a.diff(b) == {}


def test_placing_an_archive_does_not_load_tensorflow(archive):
    code = """
import sys
from tfplace.cli import main
assert main(["place", f"--model={sys.argv[1]}", "--topology=2xP100", "--placer=single", "--budget=3 evaluations"]) == 0
print("tensorflow" in sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, str(archive)], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "False"
    assert "Step times (simulated)" in done.stdout


def test_a_problem_is_placed_as_it_is(archive, tmp_path, capsys):
    path = tmp_path / "problem.npz"
    formulate(OpGraph.load(archive), "2xP100", max_memory={"GPU:0": "1GiB"}).save(path)
    place = ["place", f"--model={path}", *QUICK]
    assert main([*place, "--json"]) == PLACED
    facts = json.loads(capsys.readouterr().out)
    assert facts["topology"] == "2xP100"
    for flag in ("--topology=4xP100", "--pin=*=GPU:0", "--headroom=0.1"):
        assert main([*place, flag]) == BAD_INPUT
        assert "flags that change the problem" in capsys.readouterr().err


FOR_MODELS = [
    ("--batch=3", "a graph with all its shapes"),
    ("--param=units=3", "--param only for"),
    ("--inference", "one step's graph as it is"),
    ("--fetch=x", "one step's graph as it is"),
]


@pytest.mark.parametrize(("flag", "message"), [*FOR_MODELS, ("--evaluator=grappler", "loaded from a file")])
def test_what_an_archive_cannot_do_is_said(archive, flag, message, capsys):
    assert main(["place", f"--model={archive}", "--topology=2xP100", flag, *QUICK]) == BAD_INPUT
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "message"), FOR_MODELS)
def test_what_a_workload_cannot_do_is_said(flag, message, tmp_path, capsys):
    (tmp_path / "workload.json").write_text("{}")
    assert main(["place", f"--model={tmp_path / 'workload.json'}", flag, *QUICK]) == BAD_INPUT
    assert message in capsys.readouterr().err


def test_a_missing_archive(capsys):
    assert main(["place", "--model=missing.npz", *QUICK]) == BAD_INPUT
    assert "does not exist" in capsys.readouterr().err


def test_an_archive_is_copied_without_tensorflow(archive, tmp_path):
    run = f"from tfplace.cli import main; main({['extract', str(archive), f'--output={tmp_path}/x.npz', '--quiet']})"
    code = f"{run}; import sys; assert not {{'tensorflow', 'keras'}} & {{*sys.modules}}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert OpGraph.load(tmp_path / "x.npz").fingerprint == OpGraph.load(archive).fingerprint
