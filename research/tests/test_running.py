"""Cells in processes: which are run, and what becomes of them when some end otherwise."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace

import pytest

from research.suites import running
from research.suites.running import Task, run_all, tasks
from tests.comparison.results import CASE, HEADER, branches, run
from tfplace.comparison.cells import (
    Case,
    Facts,
    problem_of,
    run_cell,
)
from tfplace.comparison.journal import Journal
from tfplace.engines.dask_workers import DaskEngine
from tfplace.engines.process_workers import WorkerLostError
from tfplace.errors import InputError, WorkersError
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.testing import make_graph

KILLED = """
import os, signal

class Killed:
    citation = "none"

    def place(self, study):
        os.kill(os.getpid(), signal.SIGKILL)
"""


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
    said = r"killed, perhaps for memory; what ran was branches .*:Killed, seed 0;.* to resume"
    with pytest.raises(WorkersError, match=said):
        run_all(todo, journal)
    assert [*journal.runs] == [(CASE, "single", 0)] and journal.facts


def not_prepared():
    raise ImportError("half a TensorFlow")


def test_what_a_process_cannot_be_prepared_for_is_told(tmp_path):
    branches().save(tmp_path / "g.npz")
    journal, budget = Journal(tmp_path / "runs.jsonl", HEADER), Budget(evaluations=20)
    todo = tasks([(tmp_path / "g.npz", CASE)], [("single", 0)], budget, journal)
    failed = run_all(todo, journal, prepare=not_prepared)
    assert [str(error) for _, error in failed] == ["ImportError in a worker: half a TensorFlow"] * len(todo)
    assert not journal.runs


def test_what_has_finished_is_kept_when_another_process_is_killed(tmp_path, monkeypatch):
    class Engine:
        def __init__(self, count, *, cores, tries):
            assert (count, cores, tries) == (3, [(0,), (1,), (2,)], 1)

        def start(self, make):
            pool = ThreadPoolExecutor(3)

            def submit(task, asked):
                return pool.submit(task, make(), asked)

            return SimpleNamespace(submit=submit, close=pool.shutdown, count=3)

    def task(own, asked):
        if asked.placer == "metis":
            raise WorkerLostError("a worker that ended", "one that finishes")
        return run(asked.placer, 2.0)

    def failures_first(futures, timeout, return_when):
        done = sorted(wait(futures).done, key=lambda future: future.exception() is None)
        return SimpleNamespace(done=done)

    monkeypatch.setattr(running, "ProcessEngine", Engine)
    monkeypatch.setattr(running, "cores_apart", lambda: [0, 1, 2])
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
from tfplace.comparison.cells import Case
from tfplace.comparison.journal import Journal
from research.suites.running import run_all, tasks
from tfplace.search.budget import Budget
if __name__ == "__main__":
    journal = Journal("runs.jsonl", {})
    todo = tasks([(Path("g.npz"), Case("g", "2xP100"))], [("random_search", 0)], Budget(seconds=100.0), journal)
    run_all(todo, journal)
"""
    (tmp_path / "main.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "main.py"], cwd=tmp_path, env=env) as main:
        wait_for((tmp_path / "runs.jsonl").exists)  # facts are there: the search has begun
        children = children_of(main.pid)
        main.kill()
    assert children
    wait_for(lambda: not any(map(alive, children)))


def children_of(parent):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(stat.parent)
    return found


def alive(process):
    """Whether a process is there, and no zombie."""
    with contextlib.suppress(OSError):
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
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


@pytest.mark.cluster
def test_cells_run_on_dask(tmp_path):
    branches().save(tmp_path / "g.npz")
    cells = [(tmp_path / "g.npz", CASE)], [("single", 0), ("local_search", 0), ("local_search", 1)]
    here, there = (Journal(tmp_path / name, HEADER) for name in ("here.jsonl", "there.jsonl"))
    for journal, engine in ((here, None), (there, DaskEngine(count=2))):
        assert run_all(tasks(*cells, Budget(evaluations=20), journal), journal, engine=engine) == []
    assert {key: run.step_s for key, run in there.runs.items()} == {key: run.step_s for key, run in here.runs.items()}


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
