"""How the programs of research end: bad input and Ctrl-C are told in a few words, before anything takes long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.pages import ROOT
from tfplace.comparison.cells import Case, Facts, Run
from tfplace.comparison.journal import Journal
from tfplace.testing import make_graph

COMPARE = ("compare_placers", "--models=two_tower", "--topologies=2xP100", "--notight", "--graphs=graphs")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "models")))}


def command(name, *flags):
    return [sys.executable, "-m", f"research.{name}", *flags]


def run(folder, name, *flags, seconds=100):
    where = {"cwd": folder, "timeout": seconds, "env": ENVIRONMENT}
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


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("compare_placers", ["extra"], "expected flags only"),
        ("compare_placers", ["--models=two_tower", "--topologies=9xP100"], "Did you mean '8xP100'?"),
        (
            "reproduce_claims",
            ["--claim=post", "--graphs=taken", "--out=x.jsonl"],
            "taken/inception_v3.npz, which could",
        ),
        ("reproduce_claims", ["--claim=tarnawski", "--page=x", "--graphs=x"], "tarnawski with --graphs and --page"),
        ("reproduce_claims", ["--claim=tarnawski", "--out=taken/x.json"], "taken/x.json, which could not be written"),
        ("recheck_claims", ["--out=taken/x.json"], "taken/x.json, which could not be written"),
        ("recheck_claims", ["--without=heftt", "--out=x.json"], "received placer of colocrl 'heftt'"),
        (
            "recheck_claims",
            ["--claim=placeto-unseen", "--beside=placeto_7", "--out=x.json"],
            "received placer beside placeto-unseen 'placeto_7'",
        ),
        ("measure_fidelity", ["--out=taken/x.json"], "taken/x.json, which could not be written"),
        ("measure_fidelity", ["--models=two_tower", "--out=x.json", "--nopages"], "needs --out, --nopages and --plot"),
        ("measure_fidelity", ["--models=two_tower,tower"], "--models=['two_tower', 'tower']: expected some of"),
        ("measure_fidelity", ["--topology=none.json", "--out=x.json", "--plot="], "'none.json', which does not exist"),
    ],
)
def test_bad_input_is_told_at_once(tmp_path, name, flags, said):
    (tmp_path / "taken").write_text("mine\n")
    done = run(tmp_path, name, *flags)
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "taken").read_text() == "mine\n"


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
        command(*COMPARE, *flags),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
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
    assert "Run the same command again to resume" in said and "Traceback" not in said
    assert len(runs.read_text().splitlines()) == 3  # no run
