"""Comparison of placers: cells, journal, processes, standings, tables."""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tfplace.compare import journal as journal_module
from tfplace.compare import running
from tfplace.compare.cells import (
    CONSTRUCTIVE,
    SEARCHES,
    STRIDE,
    YARDSTICKS,
    Case,
    Facts,
    Run,
    facts_of,
    problem_of,
    run_cell,
    seeds_of,
)
from tfplace.compare.journal import Journal
from tfplace.compare.placers_table import full_table, goals_table, goals_text, over_all, summary_table
from tfplace.compare.running import Task, run_all, tasks
from tfplace.compare.standings import goals, over_roomy, placers_of, seed_spread, standings
from tfplace.errors import InputError, WorkersError
from tfplace.registry import PLACERS
from tfplace.report.plots import heat_map
from tfplace.search.budget import Budget
from tfplace.simulate.evaluate import Simulator
from tfplace.testing import make_graph, random_graph
from tfplace.version import versions

KILLED = """
import os, signal

class Killed:
    citation = "none"

    def place(self, study):
        os.kill(os.getpid(), signal.SIGKILL)
"""
CASE = Case("branches", "2xP100")
HEADER = {"budget": "20 evaluations"}


def branches():
    """Two chains of heavy ops with weights, which two devices share."""
    names = [f"{c}{i}" for c in "ab" for i in range(4)]
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(3)]
    return make_graph(dict.fromkeys(names, 10**6), edges)


def run(placer, step_s, seed=0, case=CASE, **more):
    return Run(case, placer, seed, step_s, 0, evaluations=1, seconds=0.1, cpu_s=0.1, **more)


def test_a_cell_says_what_was_found_and_how():
    problem = problem_of(branches(), CASE)
    found = run_cell(problem, CASE, "local_search", Budget(evaluations=30), seed=1)
    assert found.evaluations <= 30
    assert found.step_s == found.trail[-1][2] == min(step for _, _, step, _ in found.trail)
    assert found.step_s >= facts_of(problem, CASE).bound_s
    assert found == Run.from_dict(json.loads(json.dumps(found.to_dict())))


@pytest.mark.parametrize("name", [n for n in CONSTRUCTIVE if n != "scotch"])
def test_what_a_placer_makes_counts_though_it_evaluates_nothing(name):
    problem = problem_of(branches(), CASE)
    found = run_cell(problem, CASE, name, Budget(evaluations=30), seed=0)
    assert found.step_s is not None
    assert found.step_s == found.trail[-1][2]


def test_a_trail_is_thinned_and_ends_with_the_best():
    problem = problem_of(random_graph(np.random.default_rng(0), 120, variables=6), CASE)
    found = run_cell(problem, CASE, "local_search", Budget(evaluations=3000), seed=0)
    steps = [step for _, _, step, _ in found.trail]
    assert len(steps) > 5
    assert all(b <= a * (1 - STRIDE) for a, b in itertools.pairwise(steps[:-1]))
    assert steps[-1] == found.step_s


def test_a_placer_that_cannot_run_is_a_result():
    class Broken:
        citation = ""

        def place(self, study):
            raise InputError("nothing", "something")

    PLACERS.add("broken", Broken)
    try:
        found = run_cell(problem_of(branches(), CASE), CASE, "broken", Budget(evaluations=3), seed=0)
    finally:
        PLACERS._objects.pop("broken")
    assert found.step_s is None
    assert "expected something" in found.trouble


def test_tight_memory_holds_no_single_device():
    graph = random_graph(np.random.default_rng(0), 60, variables=6)
    roomy, tight = (problem_of(graph, Case("g", "4xP100", tight=t)) for t in (False, True))
    assert np.all(tight.memory_limit[1:] < roomy.memory_limit[1:])
    assert tight.memory_limit[0] == roomy.memory_limit[0]
    simulator = Simulator(tight)
    for d in range(1, 5):
        devices = np.where(tight.allowed[:, d], d, 0).astype(np.int32)
        assert not simulator(devices).feasible


def test_a_journal_goes_on_where_it_was(tmp_path):
    path = tmp_path / "deep" / "runs.jsonl"
    first = Journal(path, HEADER)
    first.add(Facts(CASE, 8, 8, 3, 1.0, "f"))
    first.add(run("auto", 2.0))
    with path.open("a") as file:
        file.write('{"run": {"case"')  # killed while it wrote
    again = Journal(path, HEADER)
    assert (again.facts, again.runs) == (first.facts, first.runs)
    again.add(run("auto", 3.0, seed=1))
    assert len(Journal(path, HEADER).runs) == 2
    with pytest.raises(InputError, match="settings with which"):
        Journal(path, {"budget": "60 s"})
    path.write_text("")  # killed before its first line was whole
    Journal(path, HEADER).add(run("auto", 3.0))
    assert len(Journal(path, HEADER).runs) == 1
    path.write_text("nonsense\n")
    with pytest.raises(InputError, match="lines of JSON"):
        Journal(path, HEADER)
    for foreign in ('{"a": 1}', "[1]\n", '{"a": 1}\n'):
        path.write_text(foreign)
        with pytest.raises(InputError, match=r"runs\.jsonl"):
            Journal(path, HEADER)


def test_what_could_not_run_is_tried_again(tmp_path):
    branches().save(tmp_path / "g.npz")
    path, cases = tmp_path / "runs.jsonl", [(tmp_path / "g.npz", CASE)]
    journal = Journal(path, HEADER)
    journal.add(Facts(CASE, 8, 8, 3, 1.0, branches().fingerprint))
    stuck = dataclasses.replace(run("scotch", None), trouble="no scotch")
    journal.add(stuck)
    journal.add(run("heft", 2.0))
    todo = tasks(cases, [("scotch", 0), ("heft", 0)], Budget(evaluations=20), journal)
    assert [task.placer for task in todo] == ["scotch"]
    size = path.stat().st_size
    journal.add(stuck)
    assert path.stat().st_size == size  # the same trouble is no news
    journal.add(run("scotch", 1.0))
    assert not tasks(cases, [("scotch", 0), ("heft", 0)], Budget(evaluations=20), Journal(path, HEADER))


def made_by(path):
    """What made the results of a file, and which lines say so."""
    lines = map(json.loads, path.read_text().splitlines())
    return {n: line["made_by"] for n, line in enumerate(lines) if "made_by" in line}


def test_a_search_that_shared_its_processor_is_run_again(tmp_path):
    path, graph = tmp_path / "runs.jsonl", make_graph({"a": 1, "b": 1}, ["a -> b"])
    graph.save(tmp_path / "branches.npz")
    journal = Journal(path, {"budget": "60 s"})
    journal.add(Facts(CASE, 2, 2, 3, 1.0, graph.fingerprint))
    shared = {"whole": (60.0, 59.9), "half": (60.0, 30.0), "ended": (20.0, 10.0)}
    for seed, (seconds, cpu_s) in enumerate(shared.values()):
        journal.add(dataclasses.replace(run("annealing", 2.0, seed=seed), seconds=seconds, cpu_s=cpu_s))
    given = [(tmp_path / "branches.npz", CASE)], [("annealing", seed) for seed in range(3)]
    assert [task.seed for task in tasks(*given, Budget(seconds=60.0), journal)] == [1]
    assert tasks(*given, Budget(evaluations=20), journal) == []
    journal.add(dataclasses.replace(run("annealing", 1.0, seed=1), seconds=60.0, cpu_s=60.0))
    again = Journal(path, {"budget": "60 s"})
    assert tasks(*given, Budget(seconds=60.0), again) == []
    assert again.runs[CASE, "annealing", 1].step_s == 1.0


def test_a_journal_says_what_made_its_results_wherever_that_changes(tmp_path, monkeypatch):
    path = tmp_path / "runs.jsonl"
    flags = ["--jobs=2", f"--graphs={tmp_path}/graphs", "--out", str(path), "--budget=60 s"]
    monkeypatch.setattr(sys, "argv", [f"{tmp_path}/scripts/compare.py", *flags])
    first = Journal(path, HEADER)
    first.add(run("auto", 2.0))
    first.add(run("auto", 2.0, seed=1))
    Journal(path, HEADER).add(run("auto", 2.0, seed=2))  # the same command goes on
    said = ["compare.py", "--jobs=2", "--graphs=graphs", "--out", "runs.jsonl", "--budget=60 s"]
    assert made_by(path) == {1: {"command": said, "versions": versions()}}
    monkeypatch.setattr(sys, "argv", ["compare.py", "--seeds=4"])
    Journal(path, HEADER).add(run("auto", 2.0, seed=3))
    monkeypatch.setattr(journal_module, "versions", lambda: {"numba": "0.1"})
    with path.open("a") as file:
        file.write('{"made_by": {"comm')  # killed while it wrote
    Journal(path, HEADER).add(run("auto", 2.0, seed=4))
    assert [*made_by(path)] == [1, 5, 7]
    assert made_by(path)[7] == {"command": ["compare.py", "--seeds=4"], "versions": {"numba": "0.1"}}
    assert len(Journal(path, HEADER).runs) == 5


def test_older_results_have_versions_beside_their_header(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"header": HEADER, "versions": {"numba": "0.1"}}) + "\n")
    Journal(path, HEADER).add(run("auto", 2.0))
    assert json.loads(path.read_text().partition("\n")[0])["versions"] == {"numba": "0.1"}
    assert [*made_by(path)] == [1] and Journal(path, HEADER).runs


def test_a_journal_has_one_writer(tmp_path):
    path = tmp_path / "runs.jsonl"
    late, first = Journal(path, HEADER), Journal(path, HEADER)
    first.add(run("auto", 2.0))
    with pytest.raises(InputError, match="another process"):
        late.add(run("auto", 3.0))
    first.add(run("single", 3.0))
    assert Journal(path, HEADER).runs == first.runs


def test_values_of_other_types_are_told(tmp_path):
    path = tmp_path / "runs.jsonl"
    journal = Journal(path, HEADER)
    journal.add(Facts(CASE, 8, 8, 3, 1.0, "f"))
    journal.add(run("auto", 2.0, trail=((1, 0.1, 2.0, "x"),), ran_s=(1.0, 2.0)))
    text = path.read_text()
    for now, wrong in (
        ('"step_s": 2.0', '"step_s": "abc"'),
        ('"cpu_s": 0.1', '"cpu_s": null'),
        ('"seed": 0', '"seed": 0.5'),
        ('"ran_s": [1.0', '"ran_s": ["x"'),
        ('"ops": 8', '"ops": "8"'),
        ('"groups": 0', '"groups": []'),
    ):
        assert now in text
        path.write_text(text.replace(now, wrong))
        with pytest.raises(InputError, match=r'received \{"(run|facts)": .* in runs\.jsonl'):
            Journal(path, HEADER)
    path.write_text(text.replace('"step_s": 2.0', '"step_s": 2').replace('"bound_s": 1.0', '"bound_s": 1'))
    assert Journal(path, HEADER).runs == journal.runs  # a whole number is one of seconds too


def test_a_placer_of_ones_own_is_run_again_only_when_it_has_changed(tmp_path):
    class Own:
        citation = ""

        def place(self, study):
            return study.problem.allowed.argmax(axis=1)

    PLACERS.add("own", Own)
    branches().save(tmp_path / "g.npz")
    cases, budget = [(tmp_path / "g.npz", CASE)], Budget(evaluations=3)
    journal = Journal(tmp_path / "runs.jsonl", HEADER)
    journal.add(Facts(CASE, 8, 8, 3, 1.0, branches().fingerprint))
    journal.add(run_cell(problem_of(branches(), CASE), CASE, "own", budget, seed=0))
    assert journal.runs[CASE, "own", 0].code
    assert not tasks(cases, [("own", 0)], budget, journal)
    journal.add(run("own", 2.0, code="of an earlier version"))
    assert [task.placer for task in tasks(cases, [("own", 0)], budget, journal)] == ["own"]


def test_a_cell_whose_process_is_killed_is_named(tmp_path, monkeypatch):
    (tmp_path / "placer_that_is_killed.py").write_text(KILLED)
    monkeypatch.syspath_prepend(tmp_path)
    branches().save(tmp_path / "g.npz")
    journal, budget = Journal(tmp_path / "runs.jsonl", HEADER), Budget(evaluations=20)
    runs = [("single", 0), ("placer_that_is_killed:Killed", 0)]
    todo = tasks([(tmp_path / "g.npz", CASE)], runs, budget, journal)
    said = r"killed, perhaps for memory; what ran was branches .*:Killed, seed 0;.* goes on"
    with pytest.raises(WorkersError, match=said):
        run_all(todo, journal)
    assert [*journal.runs] == [(CASE, "single", 0)] and journal.facts


def test_what_has_finished_is_kept_when_another_process_is_killed(tmp_path, monkeypatch):
    class Pool(ThreadPoolExecutor):
        def __init__(self, processes, context, **begin):
            super().__init__(processes)

    def task(asked):
        if asked.placer == "metis":
            raise BrokenProcessPool
        return run(asked.placer, 2.0)

    def failures_first(futures, timeout, return_when):
        done = sorted(wait(futures).done, key=lambda future: future.exception() is None)
        return SimpleNamespace(done=done)

    monkeypatch.setattr(running, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(running, "own_cores", lambda: [0, 1, 2])
    monkeypatch.setattr(running, "run_task", task)
    monkeypatch.setattr(running, "wait", failures_first)
    journal = Journal(tmp_path / "runs.jsonl", HEADER)
    todo = [Task(tmp_path, CASE, Budget(evaluations=3), name) for name in ("heft", "metis", "single")]
    with pytest.raises(WorkersError, match="what ran was branches on 2xP100, metis, seed 0;"):
        run_all(todo, journal, jobs=3)
    assert {name for _, name, _ in Journal(journal.path, HEADER).runs} == {"heft", "single"}


def test_a_cell_that_fails_stops_no_other_and_is_run_again(tmp_path):
    branches().save(tmp_path / "g.npz")
    journal = Journal(tmp_path / "runs.jsonl", HEADER)
    budget = Budget(evaluations=20)
    cases = [(tmp_path / "g.npz", CASE), (tmp_path / "h.npz", Case("h", "2xP100"))]
    todo = tasks(cases, [("heft", 0)], budget, journal)
    failed = run_all(todo, journal, jobs=99)
    assert [(task.case.graph, task.placer) for task, _ in failed] == [("h", ""), ("h", "heft")]
    assert [*journal.runs] == [(CASE, "heft", 0)]


def test_ctrl_c_ends_a_comparison_though_another_thread_has_it(tmp_path):
    branches().save(tmp_path / "g.npz")
    journal = Journal(tmp_path / "runs.jsonl", HEADER)
    todo = tasks([(tmp_path / "g.npz", CASE)], [("random_search", 0)], Budget(seconds=60.0), journal)
    sent = []

    def interrupt():
        wait_for(journal.path.exists)  # facts are there: the search has begun
        time.sleep(1.0)
        sent.append(time.monotonic())
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_all(todo, journal)
    assert time.monotonic() - sent[0] < 20


def test_no_process_outlives_a_comparison_that_is_killed(tmp_path):
    branches().save(tmp_path / "g.npz")
    code = """
from pathlib import Path
from tfplace.compare.cells import Case
from tfplace.compare.journal import Journal
from tfplace.compare.running import run_all, tasks
from tfplace.search.budget import Budget
if __name__ == "__main__":
    journal = Journal("runs.jsonl", {})
    todo = tasks([(Path("g.npz"), Case("g", "2xP100"))], [("random_search", 0)], Budget(seconds=100.0), journal)
    run_all(todo, journal)
"""
    (tmp_path / "main.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "main.py"], cwd=tmp_path, env=env, start_new_session=True) as main:
        wait_for((tmp_path / "runs.jsonl").exists)  # facts are there: the search has begun
        group = main.pid
        main.kill()
    try:
        wait_for(lambda: not alive(group))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def alive(group):
    """Whether a process group has members that are no zombies."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_results_of_another_graph_are_not_mixed(tmp_path):
    branches().save(tmp_path / "g.npz")
    journal = Journal(tmp_path / "runs.jsonl", HEADER)
    journal.add(Facts(CASE, 8, 8, 3, 1.0, "another"))
    with pytest.raises(InputError, match="another, of which"):
        tasks([(tmp_path / "g.npz", CASE)], [("heft", 0)], Budget(evaluations=20), journal)


def test_only_what_is_missing_is_run_and_processes_agree(tmp_path):
    branches().save(tmp_path / "g.npz")
    journal = Journal(tmp_path / "runs.jsonl", HEADER)
    cases, budget = [(tmp_path / "g.npz", CASE)], Budget(evaluations=20)
    runs = [("single", 0), ("local_search", 0), ("local_search", 1)]
    todo = tasks(cases, runs, budget, journal)
    assert [(t.placer, t.seed) for t in todo] == [("", 0), *runs]
    both = [(tmp_path / "g.npz", case) for case in (CASE, Case("other", "2xP100"))]
    two = tasks(both, [("auto", 0), ("auto", 1)], budget, journal)
    assert [(t.case.graph, t.seed) for t in two[2:]] == [("branches", 0), ("other", 0), ("branches", 1), ("other", 1)]
    done = []
    run_all(todo, journal, jobs=2, progress=lambda n, total: done.append((n, total)))
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert tasks(cases, runs, budget, Journal(journal.path, HEADER)) == []
    here = run_cell(problem_of(branches(), CASE), CASE, "local_search", budget, 1)
    assert journal.runs[CASE, "local_search", 1].step_s == here.step_s


def journal_of(tmp_path, *runs, bound_s=1.0, name="runs"):
    journal = Journal(tmp_path / f"{name}.jsonl", HEADER)
    for case in {r.case for r in runs}:
        journal.add(Facts(case, 8, 8, 3, bound_s, "f"))
    for each in runs:
        journal.add(each)
    return journal


def test_goals_by_hand(tmp_path):
    other, narrow = Case("other", "2xP100"), Case("narrow", "2xP100")
    runs = [
        *(run("auto", s, seed) for seed, s in enumerate((2.0, 1.5, 9.0))),
        run("heft", 4.0),
        run("annealing", 1.9),
        run("auto", 1.5, case=other),
        run("single", None, case=other, trail=()),
        run("metis", 6.0, case=other),
        run("auto", 1.1, case=narrow),
        run("single", 1.1, case=narrow),
    ]
    found = goals(standings(journal_of(tmp_path, *runs)))
    assert found.cases == 3
    assert [(str(c), p, round(f, 3)) for c, p, f in found.beaten] == [("branches on 2xP100", "annealing", 1.053)]
    assert found.behind == 1
    assert sorted(found.over_constructive) == [1.5 / 6, 2 / 4]
    assert sorted(found.over_bound) == [1.1, 1.5, 2.0]
    assert not found.unplaced


def test_only_cases_in_which_auto_was_run_are_counted(tmp_path):
    other = Case("other", "2xP100")
    runs = [run("auto", None), run("heft", 2.0), run("etf", None), run("heft", 2.0, case=other)]
    found = goals(standings(journal_of(tmp_path, *runs)))
    assert (found.cases, found.cells, found.behind) == (1, 2, 1)
    assert found.beaten == ((CASE, "heft", math.inf),) and found.unplaced == (CASE,)
    text = goals_text(standings(journal_of(tmp_path, *runs, name="again")))
    assert "auto is beaten in 1 of 2 cells, in 1 of 1 cases" in text and "heft, auto's does not fit" in text
    without = goals_text(standings(journal_of(tmp_path, runs[1], name="without")))
    assert "auto was not run" in without and "beaten" not in without


def test_a_seed_that_failed_hides_no_other(tmp_path):
    broken = run("auto", None, 1, trouble="no memory")
    journal = journal_of(tmp_path, run("auto", 2.0), broken, run("auto", 4.0, 2), run("single", 4.0))
    (row,) = standings(journal)
    assert (row.median_s("auto"), row.spread_s("auto"), row.end_s("auto")) == (3.0, (2.0, 4.0), 4.0)
    assert row.found_s("auto") == [2.0, 4.0] and row.trouble("auto") == "1 of 3 seeds failed: no memory"
    assert "3.00 (2.00..4.00), 1 of 3 seeds failed" in full_table([row])
    assert "branches on 2xP100: auto, 1 of 3 seeds failed" in goals_text([row])
    (none,) = standings(journal_of(tmp_path, broken, name="none"))
    assert all(map(math.isnan, (none.median_s("auto"), *none.spread_s("auto"), none.end_s("auto"))))
    assert none.trouble("auto") == "no memory" and none.found_s("auto") == none.found_s("heft") == []


def test_a_bound_of_nothing_has_no_ratios(tmp_path):
    rows = standings(journal_of(tmp_path, run("auto", 2.0), run("auto", 3.0, 1), run("heft", 2.5), bound_s=0.0))
    rows += standings(journal_of(tmp_path, run("auto", 3.0, case=Case("other", "2xP100")), name="other"))
    lines = {line[0]: line[2:] for line in over_all(rows)}
    assert lines["auto"] == ("2", "1.000", "3.000", "2") and lines["heft"] == ("1", "1.000", "-", "1")
    assert goals(rows).over_bound == (3.0,)
    assert summary_table(rows) and full_table(rows)
    free = standings(journal_of(tmp_path, run("auto", 0.0), run("heft", 1.0), bound_s=0.0, name="free"))
    assert [line[3:] for line in over_all(free)] == [("-", "-", "0"), ("-", "-", "1")]
    assert goals(free, "heft").beaten == ((CASE, "auto", math.inf),)


def test_what_memory_costs_by_hand(tmp_path):
    tight = Case("branches", "2xP100", tight=True)
    runs = [run("auto", 2.0), run("auto", 3.0, case=tight), run("auto", 9.0, case=Case("other", "2xP100", tight=True))]
    rows = standings(journal_of(tmp_path, *runs))
    assert over_roomy(rows) == (1.5,)
    assert over_roomy(standings(journal_of(tmp_path, run("auto", None), runs[1], name="full"))) == ()
    assert "auto with tight memory over auto without: 1.50 (1.50..1.50)" in goals_text(rows)
    lines = [line.split("|")[1:4] for line in goals_table(rows).splitlines()]
    assert {line[0].strip(): line[1].strip() for line in lines[2:]} == {"all": "3", "2xP100": "1", "2xP100, tight": "2"}


def test_what_fits_nothing_is_said(tmp_path):
    runs = [run("auto", None), run("single", None), run("exact", None, trouble="needs ortools")]
    rows = standings(journal_of(tmp_path, *runs))
    assert goals(rows).unplaced == (CASE,)
    assert "found nothing that fits: branches on 2xP100" in goals_text(rows)
    line = summary_table(rows).splitlines()[-1]
    assert line.count("does not fit") >= 3
    assert full_table(rows).splitlines()[-1].split("|")[2:-1] == [" does not fit ", " does not fit ", " -     "]


def test_tables_show_medians_and_spread(tmp_path):
    runs = [run("auto", s, seed) for seed, s in enumerate((1.25, 1.5, 2.0))] + [run("single", 3.0)]
    rows = standings(journal_of(tmp_path, *runs))
    assert placers_of(rows) == ["single", "auto"]
    assert "1.50 (1.25..2.00)" in full_table(rows)
    assert seed_spread(rows, "auto") == (2.0 / 1.25,)
    assert seed_spread(rows, "single") == seed_spread(rows, "heft") == ()
    assert "auto's slowest seed over its fastest: 1.60 (1.60..1.60), of 1 with several seeds" in goals_text(rows)
    assert "3.00 s (single)" in summary_table(rows)


def test_the_heat_map_is_a_picture(tmp_path):
    heat_map(tmp_path / "map.png", ["a", "b"], ["x", "y"], [[1.0, 7.0], [math.inf, math.nan]], what="over bound")
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"


def test_every_registered_placer_is_in_the_comparison():
    unlearned = {name for name in PLACERS if not getattr(PLACERS[name], "learned", False)}
    assert unlearned <= {*CONSTRUCTIVE, *SEARCHES, *YARDSTICKS}
    assert [*seeds_of("heft", 3)] == [0]
    assert [*seeds_of("auto", 3)] == [0, 1, 2]
