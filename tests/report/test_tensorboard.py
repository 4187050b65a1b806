"""What TensorBoard is given, read back from its files."""

from __future__ import annotations

import builtins
import struct

import numpy as np
import pytest

import tfplace
from tfplace.errors import InputError, MissingExtraError
from tfplace.local_search.sampling import device_share, pick
from tfplace.registry import PLACERS
from tfplace.report.tensorboard import BEST, TRAINING
from tfplace.testing import random_problem


def scalars(path):
    """{tag: [(step, value), ...]} of the event files of a directory: records of length, checksum, data, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for file in sorted(path.glob("events.*")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


@pytest.fixture(scope="module")
def problem():
    return random_problem(np.random.default_rng(4), num_ops=25, num_devices=3, unit=1e-3)


class Logs:
    """Draws blindly and says something of it."""

    citation = ""

    def place(self, context):
        while True:
            rows = pick(context.rng.random((10, context.problem.num_units)), device_share(context.problem))
            context.keys(rows)
            context.log({"reward": -1.5, "step_s": float("nan")})


def test_what_a_policy_logs_and_the_best_step_are_there(problem, tmp_path):
    PLACERS.add("logs", Logs)
    seen = []
    placement = tfplace.place(
        problem, placer="logs", budget=400, progress=seen.append, tensorboard=tmp_path / "new" / "board"
    )
    told = scalars(tmp_path / "new" / "board")
    assert told[TRAINING + "reward"] == [(step, -1.5) for step in range(10, 401, 10)]
    assert {*told} == {BEST, TRAINING + "reward"}  # what is not a number is no point
    assert min(value for _, value in told[BEST]) == pytest.approx(placement.cost.step_s, rel=1e-6)
    assert [step for step, _ in told[BEST]] == [p.evaluations for p in seen if p.fits]


def test_placers_that_do_not_learn_have_their_best_step(problem, tmp_path):
    tfplace.place(problem, placer="random_search", budget=100, progress=False, tensorboard=tmp_path)
    assert {*scalars(tmp_path)} == {BEST}


def test_what_is_missing_or_no_directory_is_said(problem, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a directory that can be made"):
        tfplace.place(problem, budget=10, progress=False, tensorboard=tmp_path / "file")

    def without(name, *args, **kwargs):
        if name == "tensorboardX":
            raise ImportError
        return real(name, *args, **kwargs)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'tfplace\[tensorboard\]'"):
        tfplace.place(problem, budget=10, progress=False, tensorboard=tmp_path)
