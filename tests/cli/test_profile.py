import pytest

from tests.cli.refusing import assert_refused
from tfplace.cli import BAD_INPUT, PLACED, main
from tfplace.cost.profile import Profile

SMALL = [f"--param={p}" for p in ("steps=2", "units=8", "vocabulary=50", "layers=1")]


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        (["rnnlm_2", "--output=missing/x.json"], {"expected": "missing does not"}),
        (["rnnlm_2", "--output=/tmp"], {"received": "which is a directory"}),
        ([], {"received": "without a model"}),
        (["rnnlm_2"], {"received": "no --output"}),
        (["workload.json", "--output=x.json"], {"received": "for `tfplace profile`"}),
        (["rnnlm_2m", "--output=x.json"], {"hint": "Did you mean 'rnnlm_2'"}),
        (["rnnlm_2", "--output=x.json", "--steps=0"], {"received": "--steps"}),
        (["rnnlm_2", "--ouput=x.json"], {"hint": "Did you mean '--output'?"}),
    ],
)
def test_bad_input(argv, fields):
    assert_refused(["profile", *argv], **fields)


def test_a_cache_that_takes_nothing_is_told_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "tfplace.measurement.calibration.profile.profile_graph", lambda *args, **kwargs: pytest.fail("measured")
    )
    argv = ["profile", "rnnlm_2", *SMALL, f"--output={tmp_path / 'profile.json'}", "--quiet"]
    assert main([*argv, "--cache=/proc/cache.json"]) == BAD_INPUT
    assert "cache /proc/cache.json, which could not be written" in capsys.readouterr().err
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    assert main(argv) == BAD_INPUT
    assert "--cache=FILE, or --cache=none." in capsys.readouterr().err


@pytest.mark.cluster
def test_a_model_is_profiled_and_then_known(tmp_path, capsys, logical_cpus):
    out, cache = tmp_path / "profile.json", tmp_path / "cache.json"
    argv = ["profile", "rnnlm_2", "--batch=2", *SMALL, f"--output={out}", f"--cache={cache}", "--steps=2", "--quiet"]
    assert main(argv) == PLACED
    text = capsys.readouterr().out
    assert "rnnlm_2" in text and str(out) in text and "costs / step" in text
    (device,) = Profile.load(out).devices
    assert device.model.startswith("one core of ")
    assert len(device.ops) > 20
    again = tmp_path / "again.json"
    assert main([*argv, f"--output={again}"]) == PLACED
    assert Profile.load(again).devices == Profile.load(out).devices
