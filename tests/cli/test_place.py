import errno
import json

import keras
import pytest
import tensorflow as tf

from tests import measuring
from tfplace import Placement, Topology
from tfplace.cli import BAD_INPUT, INFEASIBLE, INTERRUPTED, PLACED, main

SMALL = ["place", "--model=rnnlm_2", "--batch=2", "--quiet"]
SMALL += [f"--param={p}" for p in ("steps=3", "units=8", "vocabulary=50", "layers=1")]
ON_GPUS = [*SMALL, "--topology=2xP100", "--budget=30 evaluations"]


def test_json_is_all_there_is_on_stdout_and_files_are_written(tmp_path, capfd):
    assert main([*ON_GPUS, "--json", "--pin=*lstm*=GPU:1", f"--out={tmp_path / 'out'}"]) == PLACED
    facts = json.loads(capfd.readouterr().out)
    assert facts["topology"] == "2xP100"
    assert [d["name"] for d in facts["simulated"]["devices"]] == ["CPU:0", "GPU:0", "GPU:1"]
    assert {b["name"] for b in facts["simulated"]["baselines"]} >= {"single GPU:0", "single GPU:1"}
    files = {name: tmp_path / "out" / file for name, file in facts["files"].items()}
    assert set(files) == {"placement", "trace", "graph", "topology", "problem", "search", "report"}

    placement = Placement.from_json(files["placement"].read_text())
    pinned = [op for op in placement.op_names if "lstm" in op]
    assert pinned
    assert {placement.devices[op] for op in pinned} == {"GPU:1"}
    assert Topology.load(files["topology"]).fingerprint == placement.topology_fingerprint
    assert any(e["ph"] == "X" for e in json.loads(files["trace"].read_text())["traceEvents"])
    assert facts["verdict"] in files["report"].read_text()

    meta = tf.compat.v1.MetaGraphDef.FromString(files["graph"].read_bytes())
    devices = {n.name: n.device for n in meta.graph_def.node}
    assert {devices[op] for op in pinned} == {"/device:GPU:1"}
    with tf.Graph().as_default():
        tf.compat.v1.train.import_meta_graph(meta)


def test_tables_name_every_baseline_and_the_verdict(capsys):
    assert main([*ON_GPUS, "--placer=heft"]) == PLACED
    screen = capsys.readouterr().out
    assert max(map(len, screen.splitlines())) <= 80 and len(screen.splitlines()) <= 40
    text = " ".join(screen.split())
    assert "Step times (simulated)" in text
    assert all(f"single {d}" in text for d in ("CPU:0", "GPU:0", "GPU:1"))
    assert "the bound of" in text
    assert "best single device" in text
    assert "\x1b" not in text


def test_without_a_topology_it_plans_for_this_machine(capsys, logical_cpus):
    assert main([*SMALL, "--budget=20 evaluations", "--json", "--inference"]) == PLACED
    facts = json.loads(capsys.readouterr().out)
    assert [d["name"] for d in facts["simulated"]["devices"]] == logical_cpus


def test_same_seed_same_placement(tmp_path):
    for run in ("a", "b"):
        keras.utils.clear_session()  # Keras numbers its names within a process
        assert main([*ON_GPUS, "--seed=3", f"--out={tmp_path / run}"]) == PLACED
    a, b = (Placement.from_json((tmp_path / run / "placement.json").read_text()) for run in ("a", "b"))
    assert a.diff(b) == {}


def test_no_memory_anywhere_is_infeasible_and_says_why(capsys):
    limits = [f"--max_memory={d}=1KiB" for d in ("CPU:0", "GPU:0", "GPU:1")]
    assert main([*ON_GPUS, *limits]) == INFEASIBLE
    text = capsys.readouterr().err
    assert "may use 1.00 KiB" in text
    assert "Ways out:" in text


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--pin=*lstn*=GPU:0", "matches no op"),
        ("--budget=soon", "--budget=soon"),
        ("--headroom=1.5", "headroom 1.5"),
    ],
)
def test_rules_that_cannot_be_followed_are_bad_input(flag, message, capsys):
    assert main([*ON_GPUS, flag]) == BAD_INPUT
    assert message in capsys.readouterr().err


def test_files_that_are_no_graphs_are_bad_input(tmp_path, capsys):
    (tmp_path / "empty.pb").write_bytes(b"")
    (tmp_path / "text.pb").write_text("this is not a graph")
    (tmp_path / "folder").mkdir()
    for name in ("empty.pb", "text.pb", "folder"):
        assert main(["place", f"--model={tmp_path / name}", "--topology=2xP100", "--quiet"]) == BAD_INPUT, name
        assert name in capsys.readouterr().err


def test_interrupted_search_keeps_the_best_so_far(monkeypatch, tmp_path, capsys):
    calls = []

    def interrupt(self, progress):
        calls.append(progress)
        raise KeyboardInterrupt

    monkeypatch.setattr("tfplace.report.progress.Stages.search", interrupt)
    assert main([*SMALL, "--topology=2xP100", "--budget=60s", f"--out={tmp_path}"]) == PLACED
    assert calls
    assert (tmp_path / "placement.json").exists()
    assert "simulated step time" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--json", "--nojson"])
def test_interrupted_while_files_are_written(flag, monkeypatch, tmp_path, capsys):
    def interrupt(self, path):
        raise KeyboardInterrupt

    measuring.problem().save(tmp_path / "problem.npz")
    monkeypatch.setattr("tfplace.core.topology.Topology.save", interrupt)
    out = tmp_path / "out"
    argv = ["place", f"--model={tmp_path / 'problem.npz'}", "--placer=heft", "--budget=5 evaluations", f"--out={out}"]
    assert main([*argv, flag]) == INTERRUPTED
    streams = capsys.readouterr()
    assert "after the placement was found, before all of its files were written" in streams.err
    assert str(out / "placement.json") in streams.out and "topology.json" not in streams.out
    assert ("best_single" if flag == "--json" else "best single device") in " ".join(streams.out.split())


@pytest.mark.parametrize("what", ["placement.Placement", "topology.Topology"])
def test_a_full_disk_is_no_fault_of_ours(what, monkeypatch, tmp_path, capsys):
    def full(self, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    measuring.problem().save(tmp_path / "problem.npz")
    monkeypatch.setattr(f"tfplace.core.{what}.save", full)
    argv = ["place", f"--model={tmp_path / 'problem.npz'}", "--placer=heft", "--budget=5 evaluations"]
    assert main([*argv, f"--out={tmp_path / 'out'}"]) == BAD_INPUT
    streams = capsys.readouterr()
    assert "which could not be written (No space left on device)" in streams.err
    assert "best single device" in " ".join(streams.out.split())


def test_interrupted_before_the_search(monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("tfplace.sources.extract", interrupted)
    assert main(ON_GPUS) == INTERRUPTED
    assert capsys.readouterr().out == ""


def test_user_functions_may_print_and_give_tf_functions(tmp_path, monkeypatch, capsys):
    (tmp_path / "chatty_model.py").write_text(
        "import tensorflow as tf\n"
        "def build(batch=4):\n"
        "    print('building')\n"
        "    step = tf.function(lambda x: tf.matmul(x, x, transpose_b=True))\n"
        "    return step, (tf.TensorSpec((batch, 3), tf.float32),)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    argv = ["place", "--model=chatty_model:build", "--batch=5", "--topology=2xP100", "--budget=5 evaluations", "--json"]
    assert main(argv) == PLACED
    streams = capsys.readouterr()
    assert json.loads(streams.out)["simulated"]["step_s"] > 0
    assert "building" in streams.err


def test_saved_graph_can_be_placed_again(tmp_path, capsys):
    assert main([*ON_GPUS, f"--out={tmp_path}"]) == PLACED
    capsys.readouterr()
    again = ["place", f"--model={tmp_path / 'placed.meta'}", f"--topology={tmp_path / 'topology.json'}", "--json"]
    assert main([*again, "--quiet", "--budget=5 evaluations"]) == PLACED
    assert json.loads(capsys.readouterr().out)["title"].startswith("placed: ")


def test_every_placer_is_listed_with_what_it_does(capsys):
    assert main(["placers"]) == PLACED
    text = capsys.readouterr().out
    assert all(name in text for name in ("auto", "expert", "heft", "local_search", "round_robin", "single"))
