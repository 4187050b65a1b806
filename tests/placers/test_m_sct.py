"""m-SCT: a device waits for the favourite child, but for urgent ops."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.placers.m_sct import MSct
from tfplace.schedule.list_scheduling.scheduler import Favourites, Scheduler
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def waiting_problem():
    """On device 0: a, and at 1 s both `other`, which nobody hurries, and `child`, which waits for x until 2 s."""
    graph = make_graph({"a": 9, "x": 1, "child": 0, "other": 0}, ["a -> child", "x -> child", "a -> other"])
    allowed = np.array([[1, 0], [0, 1], [1, 1], [1, 1]], bool)
    topology = make_topology(2, bandwidth=1.0, latency=0.0)
    return make_problem(graph, topology, [1.0, 1.0, 4.0, 4.0], allowed=allowed)


def favourites(problem, pairs):
    child = np.full(problem.graph.num_ops, -1, np.int32)
    seconds = np.zeros(problem.graph.num_ops)
    for (a, b), s in pairs.items():
        child[problem.graph.index[a]], seconds[problem.graph.index[a]] = problem.graph.index[b], s
    return Favourites(child, seconds)


def test_a_device_waits_for_the_favourite_child():
    problem = waiting_problem()
    index = problem.graph.index
    plain = Scheduler.of(problem).by_start(serial=True)
    assert plain.start_s[index["other"]] == 1.0
    waits = Scheduler.of(problem).by_start(serial=True, favourites=favourites(problem, {("a", "child"): 9.0}))
    assert waits.start_s[index["child"]] == 2.0
    assert waits.unit_device[index["child"]] == 0


def test_it_waits_no_longer_than_the_transfer_would_take():
    problem = waiting_problem()
    index = problem.graph.index
    short = Scheduler.of(problem).by_start(serial=True, favourites=favourites(problem, {("a", "child"): 0.25}))
    assert short.start_s[index["other"]] == 1.25


def test_urgent_ops_run_meanwhile():
    """An op whose inputs are everywhere does not wait for the child."""
    graph = make_graph({"a": 9, "x": 1, "child": 0, "free": 0}, ["a -> child", "x -> child"])
    allowed = np.array([[1, 0], [0, 1], [1, 1], [1, 0]], bool)
    topology = make_topology(2, bandwidth=1.0, latency=0.0)
    problem = make_problem(graph, topology, [2.0, 3.0, 1.0, 1.0], allowed=allowed)
    plan = Scheduler.of(problem).by_start(serial=True, favourites=favourites(problem, {("a", "child"): 9.0}))
    assert plan.start_s[3] == 2.0
    assert plan.start_s[2] == 4.0


@pytest.mark.parametrize("seed", range(3))
def test_the_answer_is_the_best_of_all_plans(seed):
    problem = random_problem(np.random.default_rng(seed), 150, 3)
    search = Search(problem, Budget(evaluations=100), 0)
    key = Simulator(problem).key(MSct().place(search.context("x")))
    assert key == search.best_key
    assert 1 <= search.evaluations <= 8


def test_a_chain_stays_on_one_device():
    chain = make_graph({f"x{i}": 8 for i in range(6)}, [f"x{i} -> x{i + 1}" for i in range(5)])
    problem = make_problem(chain, make_topology(3))
    device = MSct().place(Search(problem, Budget(evaluations=20), 0).context("x"))
    assert len({*device.tolist()}) == 1


def test_graphs_with_too_many_pairs_have_no_favourites(monkeypatch):
    problem = random_problem(np.random.default_rng(4), 120, 3, unit=1e-3)
    monkeypatch.setattr("tfplace.placers.m_sct._MOST_PAIRS", 0)
    monkeypatch.setattr("tfplace.placers.m_sct.favourites", None)
    run = Search(problem, Budget(evaluations=20), 0)
    assert run.evaluator.key(run.run(MSct(), "m_sct")) == run.best_key
    assert run.evaluations == 1
