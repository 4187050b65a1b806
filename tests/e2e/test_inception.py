"""The main job: Inception-V3's whole training step on one CPU and four P100s, by the command."""

import json

import pytest
import tensorflow as tf

from tfplace.cli import PLACED, main


@pytest.mark.slow
def test_inception_on_four_gpus_beats_the_best_single_device(tmp_path, capfd):
    flags = ["place", "--model=inception_v3", "--topology=4xP100", "--budget=2000 evaluations", "--json", "--quiet"]
    assert main([*flags, f"--out={tmp_path}"]) == PLACED
    facts = json.loads(capfd.readouterr().out)
    baselines = {b["name"]: b["step_s"] for b in facts["simulated"]["baselines"]}
    singles = [s for name, s in baselines.items() if name.startswith("single ")]
    assert len(singles) == 5
    assert {"round_robin", "expert", "heft"} <= set(baselines)
    assert facts["simulated"]["bound_s"] <= facts["simulated"]["step_s"] < 0.9 * min(singles)
    meta = tf.compat.v1.MetaGraphDef.FromString((tmp_path / "placed.meta").read_bytes())
    used = {node.device for node in meta.graph_def.node if "conv" in node.name}
    assert {f"/device:GPU:{i}" for i in range(4)} <= used
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in trace) > 5000
