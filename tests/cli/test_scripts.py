"""How the scripts of a checkout end: bad input and Ctrl-C are told in a few words, before anything takes long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfplace.cli import BAD_INPUT
from tfplace.cli.flags import PlaceFlags
from tfplace.cli.option_tables import PAGES
from tfplace.cli.scripts import script
from tfplace.comparison.cells import Case, Facts, Run
from tfplace.comparison.journal import Journal
from tfplace.errors import InputError
from tfplace.testing import make_graph

ROOT = Path(__file__).resolve().parents[2]
COMPARE = ("compare.py", "--models=two_tower", "--topologies=2xP100", "--notight", "--graphs=graphs")


def command(name, *flags):
    return [sys.executable, str(ROOT / "scripts" / name), *flags]


def run(folder, name, *flags, seconds=100):
    where = {"cwd": folder, "timeout": seconds}
    return subprocess.run(command(name, *flags), **where, check=False, capture_output=True, text=True)


@pytest.fixture
def graphs(tmp_path):
    """A directory with two_tower.npz, which is quicker to place than that model."""
    (tmp_path / "graphs").mkdir()
    names = [f"op{i}" for i in range(40)]  # so many that no search has tried everything
    graph = make_graph(dict.fromkeys(names, 10**6), [f"op0 -> {name}" for name in names[1:]])
    graph.save(tmp_path / "graphs" / "two_tower.npz")
    return graph


def results(folder, graph, budget, **steps):
    """A file of results of that graph, one run each."""
    journal, case = Journal(folder / "runs.jsonl", {"budget": budget, "simulated": True}), Case("two_tower", "2xP100")
    journal.add(Facts(case, 40, 40, 3, 1e-6, graph.fingerprint))
    for placer, step_s in steps.items():
        journal.add(Run(case, placer, 0, step_s, 0, 1, 0.1, 0.1, ((1, 0.1, step_s, "x"),)))


def test_errors_are_messages_and_words_are_refused():
    with pytest.raises(SystemExit, match=r"^received a; expected b\.$"), script(["x.py"]):
        raise InputError("a", "b")
    said = r"received 'a' 'b'; expected flags only\. See x\.py --help"
    with pytest.raises(SystemExit, match=said), script(["x.py", "a", "b"]):
        pytest.fail("too late")
    with pytest.raises(ZeroDivisionError), script():
        raise ZeroDivisionError  # a fault of ours is no bad input


def test_an_interrupted_script_says_what_is_left(capsys):
    for raised, said in ((KeyboardInterrupt(), "the same command goes on"), (KeyboardInterrupt("after 3"), "after 3")):
        with pytest.raises(SystemExit) as end, script():
            raise raised
        assert end.value.code == 130 and said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("compare.py", ["extra"], "expected flags only"),
        ("compare.py", ["--models=nosuch"], "received model 'nosuch'; expected one of amoebanet"),
        ("compare.py", ["--models=two_tower", "--topologies=9xP100"], "Did you mean '8xP100'?"),
        ("reproduce.py", ["--claim=post", "extra"], "expected flags only"),
        (
            "reproduce.py",
            ["--claim=post", "--graphs=taken", "--out=x.jsonl"],
            "taken/inception_v3.npz, which could",
        ),
        ("reproduce.py", ["--claim=tarnawski", "--page=x", "--graphs=x"], "tarnawski with --graphs and --page"),
        ("reproduce.py", ["--claim=tarnawski", "--jobs=2"], "tarnawski with --jobs"),
        ("reproduce.py", ["--claim=tarnawski", "--out=taken/x.json"], "taken/x.json, which could not be written"),
        ("recheck.py", ["extra"], "expected flags only"),
        ("recheck.py", ["--out=taken/x.json"], "taken/x.json, which could not be written"),
        ("recheck.py", ["--without=heftt", "--out=x.json"], "received placer of colocrl 'heftt'"),
        (
            "recheck.py",
            ["--claim=placeto-unseen", "--beside=placeto_7", "--out=x.json"],
            "received placer beside placeto-unseen 'placeto_7'",
        ),
        ("fidelity.py", ["extra"], "expected flags only"),
        ("fidelity.py", ["--out=taken/x.json"], "taken/x.json, which could not be written"),
        ("fidelity.py", ["--models=two_tower"], "--models=two_tower: a run of some models needs --out, --nopages and"),
        ("fidelity.py", ["--models=two_tower", "--out=x.json", "--nopages"], "needs --out, --nopages and --plot"),
        ("fidelity.py", ["--topology=none.json", "--out=x.json", "--plot="], "'none.json', which does not exist"),
        ("make_synthetic.py", ["extra"], "expected flags only"),
        ("make_synthetic.py", ["--out=taken/x.json"], "taken/x.json, which could not be written"),
        ("make_docs.py", ["extra"], "expected flags only"),
        ("make_presets.py", ["extra"], "expected flags only"),
        ("make_zoo.py", ["--nofacts", "extra"], "expected flags only"),
        ("make_families.py", ["--graphs=x", "extra"], "expected flags only"),
        ("train_policy.py", ["--graphs=x", "--out=x", "extra"], "expected flags only"),
        ("train_policy.py", ["--graphs=x", "--out=x", "--zoo=nosuch"], "received model 'nosuch'"),
        ("train_moves.py", ["--graphs=x", "--out=x.npz", "extra"], "expected flags only"),
        ("train_moves.py", ["--graphs=x", "--out=x"], "--out=x; expected a file that ends in .npz"),
        ("train_moves.py", ["--graphs=x", "--out=x.npz"], "received no x/cifar10_0.npz; expected an extracted graph"),
        ("train_moves.py", ["--graphs=x", "--out=x.npz", "--families=nosuch"], "There is no family 'nosuch'"),
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


def test_a_plot_names_the_budget_that_auto_had(tmp_path, graphs):
    results(tmp_path, graphs, "7 s", auto=1.0, heft=2.0)
    flags = ["--suite=unseen", "--placers=heft", "--budget=7s", "--out=runs.jsonl", "--plot=plot.svg"]
    done = run(tmp_path, *COMPARE, *flags)
    assert done.returncode == 0, done.stderr
    assert "<!-- step over that of auto with 7 s -->" in (tmp_path / "plot.svg").read_text()


def test_where_every_cell_fails_there_is_no_plot(tmp_path, graphs):
    (tmp_path / "graphs" / "two_tower.npz").write_text("no graph")
    done = run(tmp_path, *COMPARE, "--placers=heft", "--out=runs.jsonl")
    assert done.returncode == 1 and "2 cells failed" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs.png").exists()


def test_ctrl_c_ends_a_comparison_in_a_line(tmp_path, graphs):
    flags = ["--placers=random_search", "--budget=100s", "--out=runs.jsonl"]
    process = subprocess.Popen(
        command(*COMPARE, *flags), cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    runs = tmp_path / "runs.jsonl"
    try:
        end = time.monotonic() + 60
        while not runs.exists() or len(runs.read_text().splitlines()) < 3:  # until facts are there, as a search begins
            assert time.monotonic() < end
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert process.returncode == 130
    assert "the same command goes on" in said and "Traceback" not in said
    assert len(runs.read_text().splitlines()) == 3  # no run
