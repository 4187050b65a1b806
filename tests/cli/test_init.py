"""`tfplace place --init`: a second search goes on from the first one's file."""

import json
from pathlib import Path

import pytest

from tests.cli.refusing import assert_refused
from tfplace.cli import BAD_INPUT, PLACED, main

WORKLOAD = (
    Path(__file__).parents[2] / "research" / "data" / "dnn_partitioning" / "workloads" / "thr-layer-bert24-inf.json"
)
PLACE = ["place", f"--model={WORKLOAD}", "--quiet", "--json"]


def step_s(capsys, *flags):
    assert main([*PLACE, *flags]) == PLACED
    return json.loads(capsys.readouterr().out)["simulated"]["step_s"]


@pytest.mark.slow
def test_the_second_search_is_never_worse(tmp_path, capsys):
    first = step_s(capsys, "--placer=local_search", "--budget=3000 evaluations", f"--out={tmp_path}")
    placement = f"--init={tmp_path / 'placement.json'}"
    assert step_s(capsys, "--budget=5 evaluations", placement) <= first
    assert step_s(capsys, "--budget=5 evaluations", "--placer=annealing", "--init=heft") <= 92.41e-3


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (["--init=heftt"], {"received": "init='heftt'"}),
        (["--init=heftt"], {"hint": "Did you mean 'heft'?"}),
        (["--init=lost.json"], {"received": "init='lost.json', which does not exist"}),
        (["--init=/"], {"received": "which is a directory"}),
        (["--noresume"], {"received": "--resume=false without a run_dir"}),
        (["--init=heft", "--placer=metis"], {"received": "init with placer 'metis'"}),
    ],
)
def test_what_is_refused(flags, fields):
    assert_refused([*PLACE, *flags], **fields)


def test_a_file_that_is_no_placement(tmp_path, capsys):
    (tmp_path / "other.json").write_text("{}")
    assert main([*PLACE, f"--init={tmp_path / 'other.json'}"]) == BAD_INPUT
    assert "which is not a placement" in capsys.readouterr().err


def test_a_search_that_is_kept_goes_on_and_is_refused_to_others(tmp_path, capsys):
    kept = [f"--run_dir={tmp_path / 'run'}", "--placer=local_search", "--budget=500 evaluations"]
    first = step_s(capsys, *kept)
    size = (tmp_path / "run" / "evaluations.bin").stat().st_size
    assert size == 500 * 24
    assert step_s(capsys, *kept) == first
    assert (tmp_path / "run" / "evaluations.bin").stat().st_size == size
    assert main([*PLACE, *kept, "--seed=1"]) == BAD_INPUT
    assert "a run with seed 1" in capsys.readouterr().err
    assert main([*PLACE, *kept, "--noresume"]) == BAD_INPUT
    assert "which has a run already" in capsys.readouterr().err
