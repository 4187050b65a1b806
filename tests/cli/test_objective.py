"""`tfplace place` of a public workload, by both objectives."""

import json
from pathlib import Path

import pytest

from tests.cli.refusing import assert_refused
from tfplace.cli import PLACED, main

WORKLOAD = (
    Path(__file__).parents[2] / "research" / "data" / "dnn_partitioning" / "workloads" / "thr-layer-bert24-inf.json"
)
PLACE = ["place", f"--model={WORKLOAD}", "--quiet", "--budget=20 evaluations"]


def test_throughput(capsys):
    assert main([*PLACE, "--objective=throughput", "--placer=contiguous", "--json"]) == PLACED
    facts = json.loads(capsys.readouterr().out)
    assert facts["objective"] == "throughput"
    assert facts["throughput"]["load_s"] == pytest.approx(17.789906e-3, abs=1e-9)


def test_files(tmp_path, capsys):
    assert main([*PLACE, "--objective=throughput", "--placer=expert", f"--out={tmp_path}"]) == PLACED
    assert "a sample every" in " ".join(capsys.readouterr().out.split())
    assert {"placement.json", "trace.json", "topology.json", "report.html"} <= {p.name for p in tmp_path.iterdir()}


def test_step_time_of_the_same_workload(capsys):
    assert main([*PLACE, "--placer=heft", "--json"]) == PLACED
    assert json.loads(capsys.readouterr().out)["simulated"]["step_s"] == pytest.approx(92.406e-3)


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (["--objective=speed"], {"received": "objective 'speed'", "expected": "one of step_time, throughput"}),
        (
            ["--objective=throughput", "--evaluator=grappler"],
            {"received": "objective 'throughput' with evaluator 'grappler'"},
        ),
        (["--topology=2xP100"], {"hint": "cannot be placed on others"}),
    ],
)
def test_what_does_not_go_together(flags, fields):
    assert_refused([*PLACE, *flags], **fields)
