"""How the scripts of a checkout end: bad input and Ctrl-C are told in a few words, before anything takes long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfplace.cli import BAD_INPUT
from tfplace.cli.flags import PlaceFlags
from tfplace.cli.option_tables import PAGES
from tfplace.cli.scripts import script
from tfplace.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


def command(name, *flags):
    return [sys.executable, str(ROOT / "scripts" / name), *flags]


def run(folder, name, *flags, seconds=100):
    where = {"cwd": folder, "timeout": seconds}
    return subprocess.run(command(name, *flags), **where, check=False, capture_output=True, text=True)


def test_errors_are_messages_and_words_are_refused():
    with pytest.raises(SystemExit, match=r"^received a; expected b\.$"), script(["x.py"]):
        raise InputError("a", "b")
    said = r"received 'a' 'b'; expected flags only\. See x\.py --help"
    with pytest.raises(SystemExit, match=said), script(["x.py", "a", "b"]):
        pytest.fail("too late")
    with pytest.raises(ZeroDivisionError), script():
        raise ZeroDivisionError  # a fault of ours is no bad input


def test_an_interrupted_script_says_what_is_left(capsys):
    for raised, said in (
        (KeyboardInterrupt(), "Run the same command again"),
        (KeyboardInterrupt("after 3"), "after 3"),
    ):
        with pytest.raises(SystemExit) as end, script():
            raise raised
        assert end.value.code == 130 and said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("make_synthetic.py", ["--out=taken/x.json"], "taken/x.json, which could not be written"),
        ("make_docs.py", ["extra"], "expected flags only"),
        ("make_presets.py", ["extra"], "expected flags only"),
        ("make_zoo.py", ["--nofacts", "extra"], "expected flags only"),
        ("make_families.py", ["--graphs=x", "extra"], "expected flags only"),
        ("train_policy.py", ["--graphs=x", "--out=x", "--zoo=nosuch"], "received model 'nosuch'"),
        ("train_policy.py", ["--graphs=x", "--out=x", "--examine_only=no.npz"], "received no.npz (No such file"),
        ("train_moves.py", ["--graphs=x", "--out=x.npz"], "received no x/cifar10_0.npz; expected an extracted graph"),
    ],
)
def test_bad_input_is_told_at_once(tmp_path, name, flags, said):
    (tmp_path / "taken").write_text("mine\n")
    done = run(tmp_path, name, *flags)
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "taken").read_text() == "mine\n"


def test_placing_has_the_flags_of_the_command(tmp_path):
    told = run(tmp_path, "place.py", "--help").stdout
    for one in PlaceFlags.declared().values():
        assert one.flag is None or f"--{one.flag}:" in told or f"--[no]{one.flag}:" in told, one.name
    flags = ["--model=missing.npz", "--pin=a=GPU:0", "--pin=b=GPU:1", "--seed=3", "--quiet"]
    done = run(tmp_path, "place.py", *flags)
    assert done.returncode == BAD_INPUT and "missing.npz" in done.stderr
    done = run(tmp_path, "place.py", *flags, "--noresume")
    assert done.returncode == BAD_INPUT and "--resume=false" in done.stderr


def test_the_tables_of_docs_are_rewritten_in_place(tmp_path):
    before = [(ROOT / page).read_text() for page in PAGES]
    done = run(tmp_path, "make_docs.py")
    assert done.returncode == 0, done.stderr
    assert [(ROOT / page).read_text() for page in PAGES] == before
