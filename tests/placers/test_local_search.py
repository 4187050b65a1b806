"""Local search finds what brute force finds on instances small enough to try everything."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest

from tfplace.core.search_context import BudgetSpentError
from tfplace.local_search import annealing
from tfplace.placers.local_search import LocalSearch
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_graph, random_problem


def search(problem, *, seed=0, evaluations=4000, **settings):
    context = Search(problem, Budget(evaluations=evaluations), seed).context("local_search")
    with contextlib.suppress(BudgetSpentError):
        LocalSearch(**settings).place(context)
    return context


def brute_force(problem):
    simulator = Simulator(problem)
    choices = [np.flatnonzero(row) for row in problem.allowed]
    return min(simulator.key(np.array(each, np.int32)) for each in itertools.product(*choices))


@pytest.mark.parametrize("seed", range(8))
def test_equals_brute_force_by_annealing(seed):
    """Two devices, at least 12 units: more placements than are simply tried one by one."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 13, constants=0.0, cpu_only=0.0, variables=0)
    problem = random_problem(rng, graph=graph, topology=make_topology(2, bandwidth=1000.0, latency=0.1), tight=seed > 3)
    assert 2**problem.num_units > 2000
    assert search(problem, seed=seed).best_key == brute_force(problem)


@pytest.mark.parametrize("seed", range(6))
def test_tries_everything_where_that_is_little(seed):
    problem = random_problem(np.random.default_rng(seed), num_ops=6, num_devices=3, tight=True)
    assert search(problem).best_key == brute_force(problem)


def test_starts_from_what_it_is_given_and_never_ends_worse():
    problem = random_problem(np.random.default_rng(3), num_ops=80, num_devices=4)
    start = search(problem, seed=1, evaluations=3000).best
    simulator = Simulator(problem)
    for evaluations in (1, 50):
        again = search(problem, seed=2, evaluations=evaluations, starts=[start])
        assert again.best_key <= simulator.key(start)


def test_finds_its_way_out_of_memory_trouble():
    """No single device holds the weights; only an even split fits."""
    names = [f"w{i:02}" for i in range(16)]
    graph = make_graph(dict.fromkeys(names, ()), variables=dict.fromkeys(names, 100))
    problem = make_problem(graph, make_topology(4, memory=400))
    assert search(problem, evaluations=20_000).best_key[0] == 0


def test_stops_when_nothing_can_move():
    graph = make_graph(dict.fromkeys("ab", 4), ["a -> b"])
    context = search(make_problem(graph, make_topology(1)), evaluations=10**9)
    assert context.spent < 1e-3


@pytest.mark.parametrize("tight", [False, True])
def test_several_moves_at_once_decide_as_one_processor_would(tight):
    """The same placements in the same order, however many threads evaluate them."""
    problem = random_problem(np.random.default_rng(11), num_ops=60, num_devices=4, tight=tight)
    found = []
    for threads in (1, 3):
        evaluator = Simulator(problem, threads=threads)
        whole = Search(problem, Budget(evaluations=700), 5, evaluator=evaluator)
        with contextlib.suppress(BudgetSpentError):
            LocalSearch().place(whole.context("local_search"))
        found.append([(i.evaluations, i.key) for i in whole.history])
        evaluator.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(3))
def test_limits_change_no_decision(monkeypatch, seed):
    """What is given up would have been turned down, and would not have been the best."""
    problem = random_problem(np.random.default_rng(seed), num_ops=70, num_devices=3, tight=seed == 2)
    limited = search(problem, evaluations=1500)
    monkeypatch.setattr(annealing, "limit_for", lambda context, most_s: np.inf)
    assert search(problem, evaluations=1500).best_key == limited.best_key
