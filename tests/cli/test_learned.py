"""`tfplace place` with placers that learn."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.refusing import assert_refused
from tfplace.cli import BAD_INPUT, PLACED, main

WORKLOAD = (
    Path(__file__).parents[2] / "research" / "data" / "dnn_partitioning" / "workloads" / "thr-layer-bert24-inf.json"
)
PLACE = ["place", f"--model={WORKLOAD}", "--quiet", "--json", "--budget=64 evaluations"]


def place(capsys, *flags):
    assert main([*PLACE, *flags]) == PLACED
    out, err = capsys.readouterr()
    assert not err  # TensorFlow's greetings neither
    return json.loads(out)


def test_controllers_kept_and_shown(tmp_path, capsys):
    run, board = tmp_path / "run", tmp_path / "board"
    flags = ["--placer=seq2seq", "--controllers=1", f"--run_dir={run}", f"--tensorboard={board}"]
    assert place(capsys, *flags)["simulated"]["step_s"] > 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["evaluations"] for line in lines] == [16, 32, 48, 64]
    assert [*board.glob("events.*")]


def test_what_tensorboard_needs_is_said_before_the_model_is_read(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main(["place", "--model=no_such_file.pb", "--tensorboard=board"]) == BAD_INPUT
    assert "pip install 'tfplace[tensorboard]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (["--controllers=2"], {"received": "controllers with placer 'auto'"}),
        (["--placer=seq2seq", "--asynchronous"], {"received": "--asynchronous=true without controllers"}),
        (["--placer=seq2seq", "--controllers=-1"], {"received": "controllers"}),
    ],
)
def test_what_is_refused(flags, fields):
    assert_refused([*PLACE, *flags], **fields)
