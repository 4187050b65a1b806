"""The best placement of a case, found again from results that have no devices."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from research.suites.merge_results import read_merged
from research.suites.rerun_best import graph_file, rerun_best
from tests.report.test_html import Outline
from tfplace.comparison.cells import Case, Facts, facts_of, problem_of, run_cell
from tfplace.comparison.journal import Journal
from tfplace.comparison.page import comparison_page
from tfplace.core.placement import Placement
from tfplace.core.placer import Placer
from tfplace.errors import InputError, MissingExtraError
from tfplace.local_search.devices import single_device
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.testing import make_graph

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"{c}{i}" for c in "abc" for i in range(6)]
GRAPH = make_graph(dict.fromkeys(NAMES, 10**8), [f"{c}{i} -> {c}{i + 1}" for c in "abc" for i in range(5)])
OTHER = make_graph({"a": 1, "b": 1}, ["a -> b"])
CASE = Case("mine", "2xP100", tight=True, groups=12)
BUDGET = "40 evaluations"


class Fails(Placer):
    """A placer whose extra is missing."""

    def place(self, context):
        raise MissingExtraError("scotch without pyscotch", "pyscotch")


class OneAccelerator(Placer):
    """Has no room for everything."""

    def place(self, context):
        return single_device(context.problem, 1)


@pytest.fixture(scope="module")
def ran():
    problem = problem_of(GRAPH, CASE)
    cells = [("single", 0), *(("random_search", seed) for seed in range(3))]
    return [
        facts_of(problem, CASE),
        *(run_cell(problem, CASE, name, Budget.parse(BUDGET), seed) for name, seed in cells),
    ]


@pytest.fixture
def graphs(tmp_path):
    GRAPH.save(tmp_path / "mine.npz")
    return tmp_path


def results(folder, lines, **header):
    journal = Journal(folder / "runs.jsonl", {"budget": BUDGET, "simulated": True, **header})
    for line in lines:
        journal.add(line)
    return journal.path


def best_of(path, graphs):
    told = []
    best = rerun_best(read_merged([path]), graphs, loads=pytest.fail, stage=told.append)
    return best[CASE], told


def least(lines):
    """The run with the shortest step; of equal ones the quickest."""
    return min((run for run in lines[1:] if run.step_s is not None), key=lambda run: (run.step_s, run.seconds))


def changed(lines, **changes):
    """The same with another best run."""
    return [dataclasses.replace(line, **changes) if line is least(lines) else line for line in lines]


def test_it_is_the_placement_that_was_found(ran, graphs):
    best, told = best_of(results(graphs, ran), graphs)
    run = least(ran)
    assert isinstance(best, Placement) and best.cost.step_s == run.step_s and best.cost.feasible
    assert (best.placer, best.seed) == (f"{run.placer} (40 evaluations)", run.seed)
    assert re.fullmatch(r"found again: .+, as in the results; the best of the runs on this page", best.notes[0])
    assert told[-1] == f"{CASE}: {run.placer}, seed {run.seed} (1 of 1 cases)"


@pytest.mark.parametrize(("budget", "clock"), [(BUDGET, False), ("0.3 s", True)])
def test_another_step_than_that_of_the_results_is_told(ran, graphs, budget, clock):
    best, _ = best_of(results(graphs, changed(ran, step_s=least(ran).step_s / 10), budget=budget), graphs)
    assert re.match(r"found again: .+ instead of .+ \(\+[\d.e+]+ %\)", best.notes[0])
    assert ("by the clock" in best.notes[0]) == clock


def test_what_cannot_be_run_by_its_name_is_told(ran, graphs):
    step_s = least(ran).step_s
    tuned = dataclasses.replace(least(ran), placer="gdp_tuned", step_s=step_s / 3)
    own = [dataclasses.replace(run, placer="my.module:Placer", step_s=step_s / 2, code="c") for run in ran[1:]]
    best, _ = best_of(results(graphs, [*ran, tuned, *own]), graphs)
    assert best.cost.step_s == step_s
    assert "as in the results; the best on this page is" in best.notes[0]
    assert "by gdp_tuned, but gdp_tuned, my.module:Placer cannot be run again by name" in best.notes[0]
    path = results(graphs / "own", [ran[0], *own])
    assert best_of(path, graphs)[0] == "my.module:Placer cannot be run again by name"
    trained = results(graphs / "trained", [ran[0], *(dataclasses.replace(run, code="d") for run in ran[1:])])
    assert best_of(trained, graphs)[0] == "random_search, single cannot be run again by name"
    unfit = [ran[0], *(dataclasses.replace(run, step_s=None) for run in ran[1:])]
    assert best_of(results(graphs / "unfit", unfit), graphs)[0] == "nothing fits"


def test_what_finds_nothing_now_is_told(ran, graphs, monkeypatch):
    monkeypatch.setitem(PLACERS._objects, "scotch", Fails)
    best, _ = best_of(results(graphs, changed(ran, placer="scotch", step_s=least(ran).step_s / 2)), graphs)
    assert best.startswith("scotch could not be run again: received scotch without pyscotch")
    monkeypatch.setitem(PLACERS._objects, "scotch", OneAccelerator)
    best, _ = best_of(graphs / "runs.jsonl", graphs)
    assert re.fullmatch(r"scotch, run again with seed \d, found nothing that fits", best)


def test_the_pictures_are_in_the_section_of_the_case(ran, graphs):
    found = read_merged([results(graphs, ran)])
    best = best_of(graphs / "runs.jsonl", graphs)[0]
    page, without = (comparison_page(found.rows, "x", shown) for shown in ({CASE: best}, None))
    assert page.count("<figure") == without.count("<figure") + 4 and Outline(page).open == []
    section = re.search(r"<details.*</details>", page, re.DOTALL)[0]
    assert "The best placement" in section and section.count("<figure") == page.count("<figure")
    assert "http" not in page
    none = comparison_page(found.rows, "x", {CASE: "<none> cannot"})
    assert "No charts: &lt;none&gt; cannot." in none and none.count("<img ") == without.count("<img ")


def test_the_fingerprint_tells_which_file_it_is(tmp_path):
    facts = Facts(CASE, 18, 12, 3, 1.0, GRAPH.fingerprint)
    OTHER.save(tmp_path / "mine.npz")
    with pytest.raises(
        InputError, match=rf"{OTHER.fingerprint} in .*mine\.npz; expected .*{GRAPH.fingerprint}.*Extract"
    ):
        graph_file(facts, tmp_path)
    (tmp_path / "batch32").mkdir()
    GRAPH.save(tmp_path / "batch32" / "mine.npz")
    assert graph_file(facts, tmp_path) == tmp_path / "batch32" / "mine.npz"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("rnnlm_2", "python scripts/make_zoo.py --only=rnnlm_2 --nofacts --graphs="),
        ("ptb_3", "python scripts/make_families.py --only=ptb --graphs="),
        ("mine", "tfplace extract MODEL --output="),
    ],
)
def test_a_graph_that_is_not_there_is_asked_for(tmp_path, name, command):
    facts = Facts(Case(name, "2xP100"), 18, 12, 3, 1.0, "f")
    with pytest.raises(InputError, match=re.escape(command)) as refused:
        graph_file(facts, tmp_path / "none")
    assert str(tmp_path / "none" / f"{name}.npz") in refused.value.received


def test_the_script_shows_it(ran, graphs):
    command = [
        sys.executable,
        "-m",
        "research.results_page",
        str(results(graphs, ran)),
        f"--out={graphs / 'page.html'}",
    ]
    subprocess.run([*command, f"--graphs={graphs}"], cwd=ROOT, check=True, timeout=200)
    assert "found again: " in (graphs / "page.html").read_text()
    failed = subprocess.run(
        [*command, f"--graphs={graphs / 'none'}"], cwd=ROOT, check=False, text=True, capture_output=True, timeout=200
    )
    assert failed.returncode == 1 and "none/mine.npz" in failed.stderr and "Traceback" not in failed.stderr
