"""`tfplace place` with evaluators other than the simulator."""

import contextlib
import json

import pytest

from tests import measuring
from tests.cli.refusing import assert_refused
from tests.cli.test_place import SMALL
from tests.measuring import Measuring
from tfplace.cli import BAD_INPUT, PLACED, main
from tfplace.core.topology import Topology
from tfplace.cost.profile import DeviceProfile, Profile
from tfplace.errors import ApplyError, InputError

TWO_CPUS = {
    "name": "two workers",
    "devices": [
        {
            "name": f"CPU:{i}",
            "type": "CPU",
            "memory": "4GiB",
            "flops": {"float32": "50GFLOP/s"},
            "memory_bandwidth": "10GB/s",
            "op_overhead": "5us",
        }
        for i in range(2)
    ],
    "links": [{"src": "*", "dst": "*", "bandwidth": "1GB/s", "latency": "100us"}],
}


@pytest.fixture
def two_cpus(tmp_path):
    Topology.from_dict(TWO_CPUS).save(tmp_path / "two.json")
    return tmp_path / "two.json"


@pytest.mark.cluster
def test_a_search_measured_on_workers(two_cpus, tmp_path, capsys):
    flags = ["--evaluator=measured", "--workers=2", "--budget=4 evaluations", "--placer=local_search"]
    assert main([*SMALL, f"--topology={two_cpus}", *flags, "--json", f"--out={tmp_path / 'out'}"]) == PLACED
    facts = json.loads(capsys.readouterr().out)
    assert facts["measured"]["step_s"] > 0
    assert facts["measured"]["steps"] == 10
    assert facts["measured"]["ratio"] > 0
    assert facts["simulated"]["step_s"] > 0
    singles = [b for b in facts["measured"]["baselines"] if b["name"].startswith("single ")]
    assert len(singles) == 4  # each op by op, and compiled
    assert all(b["step_s"] > 0 for b in singles)
    events = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert {"devices (simulated)", "devices (measured)"} <= set(processes)
    for kind in ("simulated", "measured"):
        ran = {e["name"] for e in events if e["ph"] == "X" and e["pid"] == processes[f"devices ({kind})"]}
        assert any("lstm" in op for op in ran)


def test_a_search_under_grappler(capsys):
    flags = ["--evaluator=grappler", "--budget=3 evaluations", "--placer=single", "--topology=2xP100"]
    assert main([*SMALL, *flags]) == PLACED
    out = capsys.readouterr().out
    assert "grappler step time" in out
    assert "Step times (grappler)" in out


class Traced(Measuring):
    """Measures, and raises when a step is to be traced."""

    def __init__(self, problem, error):
        super().__init__(problem)
        self.taken = []
        self._error = error

    def timeline(self, unit_device):
        raise self._error


@pytest.mark.parametrize(
    ("error", "message"),
    [(ApplyError("a placement that failed", "one that runs"), "that failed"), (KeyboardInterrupt, "")],
)
def test_a_trace_that_fails_loses_nothing(error, message, tmp_path, monkeypatch, capsys):
    def opened(fv, problem, batch):
        return contextlib.nullcontext(Traced(problem, error))

    monkeypatch.setattr("tfplace.cli.place.open_evaluator", opened)
    measuring.problem().save(tmp_path / "problem.npz")
    argv = ["place", f"--model={tmp_path / 'problem.npz'}", "--evaluator=measured", "--budget=5 evaluations", "--json"]
    assert main([*argv, "--placer=local_search", f"--out={tmp_path / 'out'}"]) == PLACED
    streams = capsys.readouterr()
    assert set(json.loads(streams.out)["files"]) == {"placement", "trace", "topology", "problem", "search", "report"}
    assert "no step was traced: " in streams.err and message in streams.err
    assert (tmp_path / "out" / "placement.json").exists()


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        (["--topology=2xP100"], False),
        (["--topology=2xP100", "--evaluator=grappler"], False),
        (["--topology=2xP100", "--evaluator=measured"], True),
        (["--topology=TWO", "--evaluator=measured", "--workers=2"], False),
        (["--topology=TWO", "--evaluator=measured", "--cluster=localhost:1,localhost:2"], False),
        ([], True),
    ],
)
def test_gpus_are_seen_where_steps_run_on_them(flags, seen, two_cpus, monkeypatch):
    asked = []

    def load(*, gpus):
        asked.append(gpus)
        raise InputError("enough", "nothing more")

    monkeypatch.setattr("tfplace.cli.problem.load_tensorflow", load)
    monkeypatch.setattr("tfplace.cli.checks.answers", lambda address, timeout_s: True)
    assert main([*SMALL, *(flag.replace("TWO", str(two_cpus)) for flag in flags)]) == BAD_INPUT
    assert asked == [seen]


def test_what_this_machine_is_taken_to_be_is_said(capsys):
    assert main([*(flag for flag in SMALL if flag != "--quiet"), "--placer=single", "--budget=1 evaluations"]) == PLACED
    said = capsys.readouterr().err
    assert "devices of this machine, looked up and not measured: CPU: " in said and "tfplace calibrate" in said


def test_workers_that_do_not_answer_are_noticed_before_the_model_is_built(two_cpus, monkeypatch):
    monkeypatch.setattr("tfplace.cli.problem.load_tensorflow", lambda **_: pytest.fail("too late"))
    flags = ["--evaluator=measured", "--cluster=localhost:1,localhost:2", f"--topology={two_cpus}"]
    assert_refused([*SMALL, *flags], received="localhost:1 does not answer", hint="tfplace worker")


def test_as_many_workers_as_devices(two_cpus):
    flags = ["--evaluator=measured", "--workers=3", f"--topology={two_cpus}"]
    assert_refused([*SMALL, *flags], expected="--workers=2")


def test_a_missing_profile_is_noticed_before_the_model_is_built(monkeypatch):
    monkeypatch.setattr("tfplace.cli.problem.load_tensorflow", lambda **_: pytest.fail("too late"))
    assert_refused([*SMALL, "--profile=nowhere.json"], received="nowhere.json")


def test_a_profile_of_other_devices_is_noticed_before_the_model_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr("tfplace.cli.problem.load_tensorflow", lambda **_: pytest.fail("too late"))
    Profile((DeviceProfile("one core of it", "CPU", "here", "one thread", {}, ()),)).save(tmp_path / "ops.json")
    flags = [f"--profile={tmp_path / 'ops.json'}", "--topology=2xP100"]
    assert_refused([*SMALL, *flags], received="'one core of it'", expected="'2xP100'")


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (["--evaluator=guess"], {"expected": "one of grappler, measured, simulated"}),
        (["--workers=2"], {"expected": "--evaluator=measured"}),
        (["--workers=2", "--evaluator=measured"], {"hint": "tfplace calibrate --workers=2"}),
        (["--workers=2", "--cluster=localhost:1", "--evaluator=measured"], {"expected": "one of the two"}),
        (["--profile=nowhere.json"], {"received": "nowhere.json"}),
        (["--workers=two"], {"received": "--workers=two"}),
        (["--step_timeout=5min"], {"received": "--step_timeout with --evaluator=simulated"}),
        (["--step_timeout=soon", "--evaluator=measured"], {"received": "--step_timeout=soon"}),
        (["--step_timeout=0s", "--evaluator=measured"], {"received": "--step_timeout=0s", "expected": "more than 0 s"}),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags, fields):
    assert_refused([*SMALL, *flags], **fields)


def test_steps_get_the_batch_of_the_model_and_the_time_that_is_asked_for(two_cpus, monkeypatch):
    def opened(problem, backend, *, batch, timeout_s, compile):
        assert problem.graph.num_ops > 100 and backend is None
        assert len(batch) == 2 and timeout_s == 300 and compile == "auto"
        raise InputError("enough", "nothing more")

    monkeypatch.setattr("tfplace.measurement.protocol.measured.MeasuredEvaluator", opened)
    flags = [f"--topology={two_cpus}", "--evaluator=measured", "--step_timeout=5min", "--quiet"]
    assert_refused([*SMALL, *flags], received="enough")
