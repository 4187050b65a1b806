"""Clusters nest, keep to what is allowed, and join over heavy edges first."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.group.coarsen import hierarchy, nested_groups
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), num_ops=st.integers(1, 80), ratio=st.sampled_from([1.0, 1.5, 3.0]))
def test_levels_nest_and_share_allowed_devices(seed, num_ops, ratio):
    problem = random_problem(np.random.default_rng(seed), num_ops)
    levels = [np.arange(problem.num_units), *hierarchy(problem, smallest=4, ratio=ratio)]
    for fine, coarse in itertools.pairwise(levels):
        assert len(np.unique(coarse)) < len(np.unique(fine))
        assert np.array_equal(np.unique(coarse), np.arange(coarse.max() + 1))
        for cluster in range(fine.max() + 1):
            assert len(np.unique(coarse[fine == cluster])) == 1
    for label in levels:
        for cluster in range(label.max(initial=-1) + 1):
            assert len(np.unique(problem.allowed[label == cluster], axis=0)) == 1


def test_the_heaviest_edge_is_joined_first():
    graph = make_graph({"a": 10, "b": 10**6, "c": 10, "d": 10}, ["a -> b", "b -> c", "c -> d"])
    label = hierarchy(make_problem(graph, make_topology(2)), smallest=2, ratio=1.0)[0]
    assert label[1] == label[2]
    assert label[0] != label[1] != label[3]


def test_one_cluster_does_not_swallow_the_graph():
    rng = np.random.default_rng(1)
    names = [f"op{i}" for i in range(400)]
    edges = [f"op{i} -> op{i + 1}" for i in range(399)]
    graph = make_graph(dict.fromkeys(names, 1000), edges)
    problem = make_problem(graph, make_topology(4), rng.random(400) + 0.5)
    for label in hierarchy(problem):
        share = np.bincount(label, problem.costs.compute_s[:, 0]) / problem.costs.compute_s[:, 0].sum()
        assert share.max() <= 12 / (label.max() + 1)  # a pair of the level before, each within the limit of 6


def test_without_edges_nothing_is_joined():
    assert hierarchy(make_problem(make_graph(dict.fromkeys("abcdefghijkl", 4)), make_topology(2))) == []


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), counts=st.lists(st.integers(1, 100), min_size=1, max_size=4))
def test_nested_groups_nest(seed, counts):
    problem = random_problem(np.random.default_rng(seed), num_ops=60)
    levels = nested_groups(problem, counts)
    sizes = [int(label.max()) + 1 for label in levels]
    assert sizes == sorted(set(sizes))
    for coarse, fine in itertools.pairwise(levels):
        assert all(len(np.unique(coarse[fine == group])) == 1 for group in range(int(fine.max()) + 1))
    assert nested_groups(problem, [10**9])[0].tolist() == list(range(problem.num_units))
