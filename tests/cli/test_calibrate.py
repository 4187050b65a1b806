from types import SimpleNamespace

import numpy as np
import pytest

from tests.cli.refusing import assert_refused
from tfplace import Topology
from tfplace.cli import BAD_INPUT, PLACED, main
from tfplace.cli.calibrate import _LARGEST
from tfplace.cost.calibrate import TransferTimes
from tfplace.measurement.calibration.rates import Rates
from tfplace.measurement.calibration.transfers import SIZES


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        (["--output=missing/x.json"], {"expected": "missing does not"}),
        (["--output=/tmp"], {"received": "which is a directory"}),
        ([], {"received": "no --output"}),
        (["stray", "--output=x.json"], {"received": "'stray'"}),
        (["--output=x.json", "--workers=0"], {"received": "--workers"}),
        (
            ["--output=x.json", "--workers=2", "--local"],
            {"received": "--workers=2 and --local", "expected": "one of the two"},
        ),
        (["--output=x.json", "--cluster=127.0.0.1:1", "--local"], {"received": "--cluster=127.0.0.1:1 and --local"}),
        (
            ["--output=x.json", "--cluster=127.0.0.1:1", "--workers=2"],
            {"received": "--workers=2 and --cluster=127.0.0.1:1"},
        ),
        (["--output=x.json", "--max_size=1KiB"], {"expected": "at least 4 KiB"}),
        (["--output=x.json", "--max_size=1GiB"], {"expected": "at most 64.0 MiB"}),
        (["--output=x.json", "--side=16"], {"received": "--side=16"}),
        (["--output=x.json", "--max_size=much"], {"received": "--max_size=much"}),
    ],
)
def test_bad_input(argv, fields):
    assert_refused(["calibrate", *argv], **fields)


def test_the_largest_transfer_is_the_largest_that_is_measured():
    assert SIZES[-1] == _LARGEST


def test_tables_are_printed_before_the_file_is_written(tmp_path, monkeypatch, capsys):
    def full(self, path):
        raise OSError("disk full")

    found = SimpleNamespace(topology=Topology.load("2xP100"), fits=())
    monkeypatch.setattr("tfplace.cli.calibrate._measure", lambda *_: found)
    monkeypatch.setattr(Topology, "save", full)
    assert main(["calibrate", f"--output={tmp_path / 'x.json'}"]) == BAD_INPUT
    streams = capsys.readouterr()
    assert "memory bandwidth" in streams.out
    assert "x.json, which could not be written (disk full)" in streams.err


@pytest.mark.cluster
def test_two_workers(tmp_path, capsys, logical_cpus, monkeypatch):
    """Real workers; what is measured of them is in `tests/measurement/test_calibrate`."""

    def transfers(backend, src, dst, flops, *, sizes, **_):
        times = 1e-4 + np.array(sizes) / 1e9
        return TransferTimes(src, dst, np.array(sizes, np.float64), times, times / 4, times / 4)

    monkeypatch.setattr("tfplace.measurement.calibration.calibrate.measure_transfers", transfers)
    monkeypatch.setattr(
        "tfplace.measurement.calibration.calibrate.measure_rates",
        lambda backend, device, process: Rates({"float32": 1e11, "float64": 5e10}, 1e10, 1e-6, 2**26),
    )
    out = tmp_path / "topology.json"
    assert main(["calibrate", f"--output={out}", "--max_size=4KiB", "--quiet"]) == PLACED
    text = capsys.readouterr().out
    assert "CPU:0 -> CPU:1" in text and "residual" in text and str(out) in text
    assert Topology.load(out).device_names == ("CPU:0", "CPU:1")
