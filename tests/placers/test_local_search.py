"""Local search finds what brute force finds on instances small enough to try everything."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest

from tfplace.placers.base import BudgetSpentError
from tfplace.placers.local_search import LocalSearch, _Annealing, _members
from tfplace.search.budget import Budget
from tfplace.search.study import Search
from tfplace.simulate.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_graph, random_problem


def search(problem, *, seed=0, evaluations=4000, **settings):
    study = Search(problem, Budget(evaluations=evaluations), seed).study("local_search")
    with contextlib.suppress(BudgetSpentError):
        LocalSearch(**settings).place(study)
    return study


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
    study = search(make_problem(graph, make_topology(1)), evaluations=10**9)
    assert study.spent < 1e-3


def test_members_of_labels():
    assert [m.tolist() for m in _members(np.array([1, 0, 1, 2], np.int32))] == [[1], [0, 2], [3]]


def test_a_large_host_does_not_make_memory_cheap():
    """What accelerators lack is weighed against their own memory, not the host's."""
    graph = make_graph(dict.fromkeys("abcd", 10), variables=dict.fromkeys("abcd", 100))
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], memory=[2**40, 400, 400])
    study = Search(make_problem(graph, topology), Budget(evaluations=1), 0).study("x")
    anneal = _Annealing(study, np.zeros(4, np.int32), (0, 4.0))
    assert anneal._energy((0, 4.0)) == 4.0
    assert anneal._energy((400, 1.0)) > 4.0
