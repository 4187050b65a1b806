"""One search on many workers: the same whoever does its parts, and nothing found is lost, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest

import tfplace
from tests.engines.test_workers import gone
from tests.search.plans import layers
from tfplace.engines.in_process import InProcessEngine
from tfplace.engines.process_workers import ProcessEngine
from tfplace.errors import InputError, PlacementError, WorkersError
from tfplace.local_search.devices import single_devices
from tfplace.options import SearchOptions
from tfplace.placers.auto import MEMBERS, member
from tfplace.registry import OBJECTIVES, PLACERS
from tfplace.search import chains as chains_module
from tfplace.search import crew as crews
from tfplace.search import portfolio as portfolio_module
from tfplace.search import team as team_module
from tfplace.search.budget import Budget
from tfplace.search.chains import drawn
from tfplace.search.crew import Crew
from tfplace.search.many_workers import OnWorkers
from tfplace.search.over_slices import place_over_slices
from tfplace.search.parts import Done, Part
from tfplace.search.place import search_placement
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import Search
from tfplace.search.team import Team
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_topology, random_problem


def problem_of(seed=7, num_ops=150):
    return random_problem(np.random.default_rng(seed), num_ops, 4, unit=1e-3, ties=False)


@pytest.fixture(autouse=True)
def many_parts(monkeypatch):
    """Of budgets that are quickly used up."""
    monkeypatch.setattr(team_module, "_EACH", 250)
    monkeypatch.setattr(chains_module, "_ROUND_EVALUATIONS", 10)
    monkeypatch.setattr(portfolio_module, "LEAST", 50)


@contextlib.contextmanager
def searching(engine, placer="auto", budget=2000, *, problem=None, run=None, objective="step_time"):
    """A search, and a placer with workers that are ready."""
    evaluator = OBJECTIVES[objective](problem or problem_of())
    placer = OnWorkers(PLACERS[placer]())
    with contextlib.closing(Crew(engine, evaluator)) as placer.crew:
        placer.crew.ready()
        yield Search(evaluator.problem, Budget.parse(budget), 0, evaluator=evaluator, run=run), placer


def search_with(*args, **options):
    """The same when it is done."""
    with searching(*args, **options) as (search, placer):
        search.run(placer, "test")
    return search, placer


def facts(search):
    history = [(i.evaluations, i.key, i.stage) for i in search.history]
    return search.best.tolist(), search.best_key, search.evaluations, history


@pytest.mark.parametrize(
    ("placer", "objective", "budget"),
    [
        ("auto", "step_time", 2000),
        ("auto", "throughput", 600),
        ("local_search", "step_time", 2000),
        ("hill_climbing", "step_time", 2000),
        ("random_search", "step_time", 2000),
    ],
)
def test_a_budget_in_evaluations_gives_one_answer_on_any_number_of_workers(placer, objective, budget):
    one, _ = search_with(InProcessEngine(1), placer, budget, objective=objective)
    three, _ = search_with(InProcessEngine(3), placer, budget, objective=objective)
    assert facts(one) == facts(three)
    assert 0.8 * budget < one.evaluations <= budget


def test_processes_give_that_answer_too():
    here, of_here = search_with(InProcessEngine(1))
    there, of_there = search_with(ProcessEngine(2))
    assert facts(here) == facts(there)
    assert of_here.notes == of_there.notes


def test_auto_is_never_worse_than_a_member():
    for seed in range(3):
        problem = problem_of(seed, 60)
        search, _ = search_with(InProcessEngine(2), budget=1000, problem=problem)
        for name in MEMBERS:
            alone = Search(problem, Budget(evaluations=50), seed)
            assert search.best_key <= alone.evaluator.key(alone.run(member(name), name))


def test_history_and_notes_say_which_part_found_what():
    search, placer = search_with(InProcessEngine(2))
    stages = [i.stage for i in search.history]
    assert {*stages} & {*MEMBERS}
    assert any(stage.startswith("local_search from") for stage in stages)
    notes = "\n".join(placer.notes)
    assert "auto: constructed: " in notes and "the best of 8 searches" in notes
    assert "on all workers" in notes and "auto: the answer goes back to " in notes


def test_a_tiny_budget_is_kept():
    for budget in (1, 2, 17, 100):
        assert 1 <= search_with(InProcessEngine(3), budget=budget)[0].evaluations <= budget


def test_a_budget_in_seconds_is_kept():
    search, _ = search_with(ProcessEngine(2), budget="1.5s")
    assert 1.2 < search.seconds < 3.5
    assert search.evaluations > 100


def killed_once(search, placer):
    """Runs a search and kills a worker when it has told something; what had been evaluated by then."""
    told = []

    def kill():
        while not search.elsewhere:
            time.sleep(0.005)
        told.append((placer.crew._workers.pids[0], search.elsewhere, search.best_key))
        os.kill(told[0][0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    search.run(placer, "test")
    killer.join()
    assert gone(told[0][0])
    return told[0][1:]


def test_a_killed_worker_costs_nothing_that_was_found():
    """With a budget in evaluations its part is done again, and the answer is that of an undisturbed search."""
    undisturbed, _ = search_with(InProcessEngine(1), "local_search", 4000)
    with searching(ProcessEngine(2), "local_search", 4000) as (search, placer):
        killed_once(search, placer)
    assert facts(search) == facts(undisturbed)


def test_by_the_clock_a_killed_worker_is_replaced_and_the_budget_nearly_kept():
    with searching(ProcessEngine(2), "local_search", "2s") as (search, placer):
        evaluations, key = killed_once(search, placer)
    assert search.broken is None and search.elsewhere > evaluations and search.best_key <= key
    assert search.seconds < 2 + 2 + 2 * 0.4 + 3  # at the worst a start and a part of a fifth, on a busy machine


def test_ctrl_c_gives_the_best_until_then_and_leaves_no_process():
    with searching(ProcessEngine(2), budget="60s") as (search, placer):
        pids = placer.crew._workers.pids

        def interrupt():
            while not search.history:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        chosen = search.run(placer, "test")
    assert search.interrupted
    assert Simulator(search.problem).key(chosen) == search.best_key
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


class Answering:
    """A crew whose workers answer what a test says."""

    count = 1

    def __init__(self, answer):
        self._answer = answer

    def answers(self, parts, *, until_s, waiting):
        for part in parts:
            yield part, self._answer(part)


def make_part(left, seed):
    return Part("test", left, seed)


def test_what_workers_find_is_checked_and_evaluated_here():
    problem = problem_of()
    good = single_devices(problem)[0]
    search = Search(problem, Budget(evaluations=100), 0)
    team = Team(search.context("test"), Answering(lambda part: Done(10, good, (0, 1e-9))))
    [*team.together(1.0, [make_part])]
    assert search.best_key == Simulator(problem).key(good) and search.evaluations == 10
    for wrong in (good + problem.num_devices, good[:-1]):
        team = Team(search.context("test"), Answering(lambda part, wrong=wrong: Done(10, wrong, (0, 1e-9))))
        with pytest.raises(PlacementError):
            [*team.together(1.0, [make_part])]


def test_a_part_that_is_given_up_does_not_end_the_search(monkeypatch):
    """Its worker is lost again and again; when all parts are, there is nobody left to search."""
    real = crews.done

    def lost_one(own, part):
        if part.name == "heft":
            raise WorkersError("a worker that ended 3 times", "one that finishes it")
        return real(own, part)

    monkeypatch.setattr(crews, "done", lost_one)
    search, placer = search_with(InProcessEngine(2), budget=2000)
    assert search.broken is None and search.evaluations > 1600
    assert any(note.startswith("auto: heft failed: received a worker that ended") for note in placer.notes)

    def lost_all(own, part):
        raise WorkersError("a worker that ended 3 times", "one that finishes it")

    monkeypatch.setattr(crews, "done", lost_all)
    search, _ = search_with(InProcessEngine(2), budget=2000)
    assert isinstance(search.broken, WorkersError)
    assert search.best_key == Simulator(search.problem).key(search.best)


def test_a_run_that_was_cut_goes_on_with_another_number_of_workers(tmp_path, monkeypatch):
    parts, last, real = [], 10**9, crews.done

    def cut_short(own, part):
        if len(parts) == last:
            raise KeyboardInterrupt
        parts.append(part)
        return real(own, part)

    monkeypatch.setattr(crews, "done", cut_short)
    whole, _ = search_with(InProcessEngine(1))
    last = len(parts) - 10
    parts.clear()
    with RunDirectory(tmp_path, {}, keep_s=0.0) as run:
        cut, _ = search_with(InProcessEngine(2), run=run)
    assert cut.interrupted and cut.best_key >= whole.best_key
    parts.clear()
    with RunDirectory(tmp_path, {}, keep_s=0.0) as run:
        again, _ = search_with(InProcessEngine(3), run=run)
    assert 10 <= len(parts) < 20  # the last rounds alone
    assert again.best_key == whole.best_key and again.evaluations == whole.evaluations
    np.testing.assert_array_equal(again.best, whole.best)


def test_chains_go_on_from_the_better_places():
    rng = np.random.default_rng(0)
    assert drawn(np.array([1.0, 1.0, 1.0]), 1e-3, 3, rng) == [0, 1, 2]  # equal ones are all kept
    assert drawn(np.array([1.0, 2.0, 1.5]), 1e-3, 4, rng) == [0, 0, 0, 0]
    many = np.bincount(drawn(np.array([1.0, 2.0]), 1.0, 1000, rng), minlength=2)
    assert many[1] == pytest.approx(1000 / (1 + np.e), abs=1)
    assert drawn(np.array([np.inf, np.inf]), 1.0, 2, rng) == [0, 1]


def test_place_searches_on_an_engine():
    options = {"budget": 2000, "baselines": (), "progress": False}
    here = tfplace.place(problem_of(), engine=InProcessEngine(1), **options)
    there = tfplace.place(problem_of(), engine="processes:2", **options)
    assert here.devices == there.devices and here.cost.step_s == there.cost.step_s
    assert any("on all workers" in note for note in here.notes)
    grouped = tfplace.place(problem_of(), engine=InProcessEngine(2), grouper="merge", groups=20, **options)
    assert any("of the groups: " in note and "on all workers" in note for note in grouped.notes)


def test_steps_are_not_measured_side_by_side():
    with pytest.raises(InputError, match="an engine with measured steps"):
        tfplace.place(problem_of(), engine=InProcessEngine(2), evaluator="measured", progress=False)


def test_a_placer_that_does_not_search_is_refused_with_those_that_do():
    with pytest.raises(InputError, match=r"an engine with placer 'heft'.*auto.*local_search"):
        tfplace.place(problem_of(), engine=InProcessEngine(2), placer="heft", progress=False)


class Counted(InProcessEngine):
    started = 0

    def start(self, make):
        self.started += 1
        return super().start(make)


def test_every_number_of_slices_is_searched_on_the_engine():
    searches = []

    def search(problem, options):
        searches.append(options)
        return search_placement(problem, **options.given() | {"evaluator": None, "progress": None})

    engine = Counted(2)
    options = SearchOptions.of("place", {"budget": "200 evaluations", "baselines": (), "engine": engine}).check()
    placed = place_over_slices(layers(make_topology(2), [1.0, 2.0, 1.0], [2**20] * 3), search, options)
    assert placed.cost.feasible and engine.started == len(searches) > 2
