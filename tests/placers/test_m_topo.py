"""m-TOPO and random placements."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.group.acyclic import precedence
from tfplace.local_search.devices import compute_devices
from tfplace.placers.m_topo import MTopo, shares, unit_bytes
from tfplace.placers.random_placement import Random
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def place(placer, problem, evaluations=200, seed=0):
    search = Search(problem, Budget(evaluations=evaluations), seed)
    return placer.place(search.context("x")), search


def test_by_hand():
    """Sizes 4, 6, 2, 5, 3: 20 in all, a share of 10 + 6 on each of two devices."""
    graph = make_graph({"a": 4, "b": 6, "c": 2, "d": 5, "e": 3}, ["a -> b", "b -> c", "c -> d", "d -> e"])
    problem = make_problem(graph, make_topology(2))
    assert unit_bytes(problem).tolist() == [4, 6, 2, 5, 3]
    assert shares(problem, np.array([0, 1]), unit_bytes(problem)).tolist() == [16, 16]
    assert place(MTopo(), problem)[0].tolist() == [0, 0, 0, 1, 1]


def test_shares_follow_the_limits():
    graph = make_graph(dict.fromkeys("abcdef", 0), variables=dict.fromkeys("abcdef", 10))
    problem = make_problem(graph, make_topology(3, memory=[30, 20, 10]))
    assert shares(problem, np.arange(3), unit_bytes(problem)).tolist() == [30, 20, 10]
    assert place(MTopo(), problem)[0].tolist() == [0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_filled_in_topological_order_and_none_but_the_last_above_its_share(seed):
    problem = random_problem(np.random.default_rng(seed), 60, 4)
    devices = compute_devices(problem)
    device = place(MTopo(), problem)[0]
    free = problem.allowed[:, devices].all(axis=1)
    order = [u for u in precedence(problem).order.tolist() if free[u]]
    assert np.all(np.diff(device[order]) >= 0)
    size = unit_bytes(problem)
    held = np.bincount(device[free], size[free], problem.num_devices)[devices]
    assert np.all(held[:-1] <= shares(problem, devices, size)[:-1])


def test_random_draws_differ_by_seed_and_are_spread():
    graph = make_graph({f"x{i}": 0 for i in range(3000)})
    problem = make_problem(graph, make_topology(4, types=["CPU", "GPU", "GPU", "GPU"]))
    first, search = place(Random(), problem, seed=1)
    assert search.evaluations == 1
    assert not np.array_equal(first, place(Random(), problem, seed=2)[0])
    counts = np.bincount(first, minlength=4)
    assert counts[0] == 0
    assert np.all(np.abs(counts[1:] - 1000) < 120)


def test_random_draws_until_one_fits():
    names = [f"w{i}" for i in range(4)]
    graph = make_graph(dict.fromkeys(names, ()), variables=dict.fromkeys(names, 60))
    problem = make_problem(graph, make_topology(2, memory=150))
    for seed in range(5):
        device, search = place(Random(), problem, seed=seed)
        assert np.bincount(device).tolist() == [2, 2]
        assert search.best_key[0] == 0
