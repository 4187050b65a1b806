"""Parts of a k-way partition."""

from __future__ import annotations

import sys

import numpy as np

from tfplace.group.metis import metis, partition
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def test_two_cliques_are_two_groups():
    edges = [f"{c}{i} -> {c}{j}" for c in "ab" for i in range(8) for j in range(i + 1, 8)] + ["a7 -> b0"]
    graph = make_graph({f"{c}{i}": 100 for c in "ab" for i in range(8)}, edges)
    assert metis(make_problem(graph, make_topology(2)), 2).tolist() == [0] * 8 + [1] * 8


def test_large_variables_count_for_the_balance():
    """A chain whose first quarter holds all variables: by seconds alone it would be cut in the middle."""
    names = [f"op{i}" for i in range(40)]
    edges = [f"op{i} -> op{i + 1}" for i in range(39)]
    held = dict.fromkeys(names[:10], 400)
    graph = make_graph(dict.fromkeys(names, 4), edges, variables=held)
    light = np.bincount(metis(make_problem(graph, make_topology(2)), 2)).tolist()
    short = np.bincount(metis(make_problem(graph, make_topology(2, memory=19_000)), 2)).tolist()
    assert light == [20, 20]
    assert 7 <= short[0] <= 9


def test_shares_of_the_weight():
    nodes = np.arange(99, dtype=np.int32)
    chain = (nodes[:-1], nodes[1:], np.ones(98))
    part = partition(chain, np.ones(99), 3, shares=np.array([1.0, 1.0, 4.0]))
    np.testing.assert_allclose(np.bincount(part), [16.5, 16.5, 66], atol=3)
    assert (np.diff(part) != 0).sum() == 2


def test_few_nodes_are_dealt_out():
    none = (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))
    assert partition(none, np.ones(3), 5).tolist() == [0, 1, 2]
    assert partition(none, np.ones(6), 4).tolist() == [0, 0, 1, 2, 2, 3]
    assert partition(none, np.ones(3), 1).tolist() == [0, 0, 0]
    assert partition(none, np.ones(0), 2).tolist() == []


def test_metis_keeps_quiet(capfd):
    """It prints on stdout, which is for results, when it is asked for parts that stay empty."""
    for seed in range(8):
        problem = random_problem(np.random.default_rng(seed), num_ops=150, num_devices=3, ties=False)
        for count in (2, 9, 40, 100):
            metis(problem, count)
    low = np.arange(699, dtype=np.int32)
    heavy = np.where(np.arange(700) < 20, 1.0, 1e-6)
    assert len(np.unique(partition((low, low + 1, np.ones(699)), heavy, 300))) < 300
    sys.stdout.write("what was printed before and after is kept\n")
    assert capfd.readouterr().out == "what was printed before and after is kept\n"
