import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.refusing import assert_refused
from tfplace import cli
from tfplace.cli import BAD_INPUT, INFEASIBLE, INTERNAL, INTERRUPTED, PLACED, UNREAD, main, source
from tfplace.cli.click_options import LazyGroup, read
from tfplace.cli.flags import PlaceFlags
from tfplace.cli.place import place_command
from tfplace.comparison.defaults import PLACERS_BY_DEFAULT
from tfplace.errors import InfeasibleError, Shortage
from tfplace.registry import GROUPERS


def flags_of(command, *argv):
    """What a command gets, without running it."""
    found = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command, "callback", lambda **given: found.append(given))
        command.main([*argv], standalone_mode=False)
    return {name: read(command._options[name], raw) for name, raw in found[0].items() if raw not in (None, ())}


def test_help_names_every_command(capsys):
    assert main(["--help"]) == PLACED
    text = capsys.readouterr().out
    assert all(command in text for command in cli.COMMANDS)
    assert main([]) == PLACED
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("word", ["--help", "--helpfull", "--helpshort", "-h"])
def test_every_command_describes_itself_by_all_words_for_it(word, capsys):
    for name in cli.COMMANDS:
        assert main([name, word]) == PLACED
        assert f"tfplace {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_lists_every_flag_with_its_default(name, capsys):
    command = LazyGroup(cli.COMMANDS).get_command(None, name)
    assert main([name, "--help"]) == PLACED
    text = " ".join(capsys.readouterr().out.split())
    for declared in command._options.values():
        assert f"--{declared.flag}" in text or f"--[no]{declared.flag}" in text
        assert declared.spec.help in text
        assert declared.spec.unset in text


def test_help_names_what_there_is_to_choose_from(capsys):
    assert main(["compare", "--help"]) == PLACED
    text = capsys.readouterr().out
    assert all(suffix in text for suffix in source.SUFFIXES)
    placers = [name for names in PLACERS_BY_DEFAULT.values() for name in names]
    assert all(name in text for name in (*GROUPERS, *placers))


def test_repeated_rules_add_up():
    found = PlaceFlags(
        **flags_of(place_command, "--forbid=a=GPU:0", "--forbid=b=GPU:0", "--forbid=a=GPU:1,GPU:2", "--pin=a=b=GPU:0")
    )
    assert found.rules.forbid == {"a": ["GPU:0", "GPU:1", "GPU:2"], "b": ["GPU:0"]}
    assert found.rules.pin == {"a=b": "GPU:0"}


def test_parameters_are_split_at_the_first_equals_sign():
    assert flags_of(place_command, "--param=path=a=b", "--param=n=3")["param"] == {"path": "a=b", "n": "3"}


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["--run_dir=x"], {"run_dir": "x"}),
        (["--run-dir", "x"], {"run_dir": "x"}),
        (["--noresume", "--nojson"], {"resume": False, "json": False}),
        (["--no-resume"], {"resume": False}),
        (["--resume=false", "--json=true"], {"resume": False, "json": True}),
        (["--resume=False", "--resume"], {"resume": True}),
        (["--seed=3", "--seed", "4"], {"seed": 4}),
        (["--max-memory=GPU:0=1GiB", "--max_memory=GPU:1=2GiB"], {"max_memory": {"GPU:0": "1GiB", "GPU:1": "2GiB"}}),
        (["--colocate=a,b", "--colocate=c,d"], {"colocate": (["a", "b"], ["c", "d"])}),
        (["--baselines=heft, single"], {"baselines": ("heft", "single")}),
    ],
)
def test_how_flags_are_spelled(argv, found):
    assert flags_of(place_command, *argv) == found


def test_words_may_stand_between_flags():
    command = LazyGroup(cli.COMMANDS).get_command(None, "extract")
    context = command.make_context("extract", ["--inference", "rnnlm_2", "--output=x.npz"])
    assert context.args == ["rnnlm_2"]


def test_version(capsys):
    import tfplace

    assert main(["--version"]) == PLACED
    assert capsys.readouterr().out == f"tfplace {tfplace.__version__}\n"


@pytest.mark.parametrize(
    ("command", "names"), [("topologies", ["4xP100", "8xV100-NVLink"]), ("models", ["inception_v3", "transformer"])]
)
def test_lists(command, names, capsys):
    assert main([command]) == PLACED
    text = capsys.readouterr().out
    assert all(name in text for name in names)
    assert main([command, "--all"]) == BAD_INPUT


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        (["plase"], {"hint": "Did you mean 'place'"}),
        (["place"], {"received": "no --model"}),
        (["place", "--modle=x"], {"hint": "Did you mean '--model'?"}),
        (["place", "--model=x", "--seed=one"], {"received": "--seed=one"}),
        (["place", "--model=x", "--seed=-1"], {"received": "--seed=-1"}),
        (
            ["place", "--model=rnnlm_2", "--pin=a=GPU:0", "--pin=a=GPU:1"],
            {"received": "--pin=a=GPU:0 and --pin=a=GPU:1"},
        ),
        (
            ["place", "--model=rnnlm_2", "--max_memory=GPU:0=1GiB", "--max_memory=GPU:0=2GiB"],
            {"expected": "one of the two"},
        ),
        (["place", "--model=rnnlm_2", "--param=units=3", "--param=units=4"], {"expected": "one of the two"}),
        (["place", "--model=missing.json"], {"received": "does not exist"}),
        (["place", "--model=x", "stray"], {"received": "'stray'"}),
        (["place", "--model=inception_v33"], {"hint": "Did you mean 'inception_v3'"}),
        (["place", "--model=missing/graph.pb"], {"received": "does not exist"}),
        (["place", "--model=no_such_module:build"], {"received": "module 'no_such_module', which cannot be found"}),
        (["place", "--model=tfplace_zoo.zoo:bild"], {"hint": "It has names, describe, parameters, facts, build"}),
        (["place", "--model=rnnlm_2", "--param=unis=3"], {"received": "parameter of rnnlm_2 'unis'"}),
        (["place", "--model=rnnlm_2", "--param=units"], {"expected": "--param=NAME=VALUE"}),
        (["place", "--model=rnnlm_2", "--topology=4xP101"], {"hint": "Did you mean '4xP100'"}),
        (["place", "--model=rnnlm_2", "--topology=missing.json"], {"received": "does not exist"}),
        (["place", "--model=rnnlm_2", "--placer=heftt"], {"hint": "Did you mean 'heft'"}),
        (["place", "--model=rnnlm_2", "--pin=*lstm*"], {"expected": "--pin=PATTERN=DEVICE"}),
        (["place", "--model=rnnlm_2", "--topology=2xP100", "--pin=*=GPU:7"], {"received": "device 'GPU:7'"}),
        (["place", "--model=rnnlm_2", "--max_memory=GPU:0=plenty"], {"received": "--max_memory=GPU:0=plenty"}),
        (["place", "--model=rnnlm_2", "--topology=2xP100", "--max_memory=GPU:9=1GiB"], {"received": "device 'GPU:9'"}),
        (["place", "--model=rnnlm_2", "--out=/dev/null/x"], {"received": "--out=/dev/null/x"}),
        (["place", "--model=/dev/null/graph.meta"], {"received": "does not exist"}),
    ],
)
def test_bad_input_is_explained_without_a_traceback(argv, fields, capsys):
    assert_refused(argv, **fields)
    streams = capsys.readouterr()
    assert streams.err and "Traceback" not in streams.err
    assert streams.out == ""


@pytest.fixture
def no_tensorflow(monkeypatch):
    for command in ("problem", "profile", "calibrate", "extract"):
        monkeypatch.setattr(f"tfplace.cli.{command}.load_tensorflow", lambda **_: pytest.fail("too late"))


@pytest.mark.usefixtures("no_tensorflow")
@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        (["place", "--model=no_such_module:build"], {"received": "module 'no_such_module', which cannot be found"}),
        (["extract", "no_such_module:build", "--output=/tmp/x.npz"], {"received": "which cannot be found"}),
        (["profile", "graph.npz", "--output=/tmp/x.json"], {"received": "'graph.npz' for `tfplace profile`"}),
        (
            ["profile", "rnnlm_2", "--output=/tmp/x.json", "--cluster=foo"],
            {"received": "--cluster=foo", "expected": '"host:port"'},
        ),
        (
            ["calibrate", "--output=/tmp/x.json", "--cluster=foo"],
            {"received": "--cluster=foo", "expected": '"host:port"'},
        ),
        (["calibrate", "--output=/tmp/x.json", "--cluster=a:1,foo"], {"received": "--cluster=foo"}),
        (
            ["place", "--model=rnnlm_2", "--topology=2xP100", "--evaluator=measured", "--cluster=foo"],
            {"received": "--cluster=foo", "expected": '"host:port"'},
        ),
        (["place", "--model=rnnlm_2", "--batch=0"], {"received": "--batch=0"}),
        (["profile", "rnnlm_2", "--output=/tmp/x.json", "--batch=-1"], {"received": "--batch=-1"}),
        (["worker", "--port=65536"], {"received": "--port=65536"}),
        (["place", "inception_v3"], {"received": "'inception_v3'", "expected": "--model=inception_v3"}),
        (["compare", "inception_v3"], {"expected": "--model=inception_v3"}),
        (["place", "--model=rnnlm_2", "--out=/proc"], {"received": "--out=/proc ("}),
        (["place", "--model=rnnlm_2", "--run_dir=/proc"], {"received": "--run_dir=/proc ("}),
        (["compare", "--model=rnnlm_2", "--out=/proc"], {"received": "--out=/proc ("}),
        (["place", "--model=rnnlm_2", "--out="], {"received": "--out=", "expected": "DIRECTORY, or no out"}),
        (["place", "--model=rnnlm_2", "--run_dir="], {"received": "--run_dir="}),
        (
            ["place", "--model=rnnlm_2", "--topology="],
            {"received": "--topology=", "expected": "NAME|FILE, or no topology"},
        ),
        (["compare", "--model=rnnlm_2", "--profile="], {"received": "--profile="}),
        (["place", "--model=rnnlm_2", "--topology=2xP100", "--init="], {"received": "--init="}),
        (["place", "--model=rnnlm_2", "--topology=2xP100", "--tensorboard="], {"received": "--tensorboard="}),
        (["extract", "rnnlm_2", "--output=/proc/x.npz"], {"received": "--output=/proc/x.npz ("}),
        (["calibrate", "--output=/proc/x.json"], {"received": "--output=/proc/x.json ("}),
        (
            ["place", "--model=rnnlm_2", "--budget=500"],
            {"received": "--budget=500", "expected": '"500s" or "500 evaluations"'},
        ),
        (
            ["compare", "--model=rnnlm_2", "--budget=-3s"],
            {"received": "--budget=-3s", "expected": 'a time such as "30s"'},
        ),
        (["place", "--model=rnnlm_2", "--budget=0s"], {"received": "--budget=0s", "expected": "more than 0 seconds"}),
        (
            ["place", "--model=rnnlm_2", "--max_memory=GPU:0=some"],
            {"received": "--max_memory=GPU:0=some", "expected": "a size such as"},
        ),
        (
            ["calibrate", "--output=/tmp/x.json", "--max_size=much"],
            {"received": "--max_size=much", "expected": "a size such as"},
        ),
        (["worker", "--memory_limit=much"], {"received": "--memory_limit=much", "expected": "a size such as"}),
    ],
)
def test_refused_before_tensorflow_is_loaded(argv, fields):
    assert_refused(argv, **fields)


def test_a_path_that_cannot_be_reached_is_no_fault_of_ours(capsys):
    assert main(["place", f"--model={'m' * 300}"]) == BAD_INPUT
    said = capsys.readouterr().err
    assert "File name too long" in said and "Traceback" not in said


def test_output_that_nobody_reads_is_no_error():
    command = [sys.executable, "-m", "tfplace", "placers"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.wait(100) == UNREAD
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InfeasibleError("nothing fits", [Shortage("GPU:0", 2**31, 2**30)], ["use more"]), INFEASIBLE, "1.00 GiB over"),
        (KeyboardInterrupt(), INTERRUPTED, "before there was a placement"),
        (RuntimeError("a bug"), INTERNAL, "Traceback"),
        (BrokenPipeError("of a worker, not of the output"), INTERNAL, "Traceback"),
    ],
)
def test_exit_codes(monkeypatch, capsys, error, code, text):
    def fails(**_):
        raise error

    monkeypatch.setattr(place_command, "callback", fails)
    assert main(["place", "--model=x"]) == code
    assert text in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="of Linux")
@pytest.mark.parametrize(("redirected", "said"), [("> /dev/full", "No space left"), (">&-", "standard output")])
def test_results_that_cannot_be_written_are_no_fault_of_ours(redirected, said):
    command = f"{sys.executable} -m tfplace topologies {redirected}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == BAD_INPUT
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("setting", ["PYTHONIOENCODING=ascii", "PYTHONIOENCODING=latin-1", "LC_ALL=C"])
def test_results_are_written_in_any_encoding(setting):
    name, _, value = setting.partition("=")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONUTF8", "LC_ALL", "LANG")} | {name: value}
    command = [sys.executable, "-X", "utf8=0", "-m", "tfplace", "topologies"]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (PLACED, b"")
    assert b"2xP100" in done.stdout and b"----" in done.stdout


def test_a_worker_without_any_memory():
    assert_refused(["worker", "--memory_limit=0"], received="--memory_limit=0", expected="more than 0")
