"""Producers with their only consumers, then the smallest with their neighbours."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.group.acyclic import is_acyclic, precedence
from tfplace.group.co_placement import merge, single_consumers
from tfplace.group.unit_graph import unit_graph
from tfplace.testing import make_graph, make_problem, make_topology, random_graph


def problem_of(ops, edges, seconds=1.0, **settings):
    return make_problem(make_graph(dict.fromkeys(ops, 4), edges, **settings), make_topology(2), seconds)


def groups_of(problem, label):
    return {tuple(np.array(problem.graph.op_names)[label == g].tolist()) for g in range(label.max() + 1)}


def test_only_consumers_to_a_fixed_point():
    """a and b feed only c; c feeds d and e, which both feed f: once d and e have joined f, c has one reader left."""
    problem = problem_of("abcdef", ["a -> c", "b -> c", "c -> d", "c -> e", "d -> f", "e -> f"])
    assert groups_of(problem, single_consumers(problem, unit_graph(problem))) == {tuple("abcdef")}


def test_two_readers_that_stay_apart_keep_their_producer_apart():
    problem = problem_of("abcde", ["a -> b", "b -> c", "b -> d", "^a -> e"])
    assert groups_of(problem, single_consumers(problem, unit_graph(problem))) == {
        ("a",),
        ("b",),
        ("c",),
        ("d",),
        ("e",),
    }


def fixed_point(problem):
    """The rule by its words, one merge after the other, on graphs without circles of units."""
    order = precedence(problem)
    graph = nx.DiGraph(zip(order.src.tolist(), order.dst.tolist(), strict=True))
    graph.add_nodes_from(range(problem.num_units))
    kind = {u: tuple(problem.allowed[u]) for u in graph}
    label = np.arange(problem.num_units)
    while True:
        pairs = [(u, v) for u in graph if graph.out_degree(u) == 1 for v in graph.successors(u) if kind[u] == kind[v]]
        if not pairs:
            return label
        u, v = pairs[0]
        label[label == u] = v
        graph = nx.contracted_nodes(graph, v, u, self_loops=False, copy=False)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), num_ops=st.integers(1, 40))
def test_the_fixed_point_is_that_of_the_words(seed, num_ops):
    rng = np.random.default_rng(seed)
    edges = [f"op{rng.integers(b)} -> op{b}" for b in range(1, num_ops) for _ in range(rng.integers(0, 3))]
    names = [f"op{i}" for i in range(num_ops)]
    host = [n for n in names if rng.random() < 0.1]
    graph = make_graph(dict.fromkeys(names, 4), edges, cpu_only=host)
    problem = make_problem(graph, make_topology(2, types=["CPU", "GPU"]))
    label, slow = single_consumers(problem, unit_graph(problem)), fixed_point(problem)
    np.testing.assert_array_equal(label[:, None] == label, slow[:, None] == slow)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), num_ops=st.integers(1, 60))
def test_single_consumers_make_no_circles(seed, num_ops):
    graph = random_graph(np.random.default_rng(seed), num_ops, variables=0)
    problem = make_problem(graph, make_topology(3, types=["CPU", "GPU", "GPU"]))
    assert is_acyclic(problem, single_consumers(problem, unit_graph(problem)))


def test_the_smallest_joins_the_neighbour_it_exchanges_most_with():
    """b is smallest; of its neighbours c gets more from it than it has from a."""
    graph = make_graph(
        {"a": 10, "b": 10**6, "c": 10, "d": 10, "e": 10},
        ["a -> b", "b -> c", "a -> d", "b -> e", "a -> e", "c -> d", "c -> e"],
    )
    seconds = {"a": 3.0, "b": 1.0, "c": 3.5, "d": 4.0, "e": 5.0}
    problem = make_problem(graph, make_topology(2), seconds)
    label = merge(problem, 4)
    assert groups_of(problem, label) == {("a",), ("b", "c"), ("d",), ("e",)}


def test_one_group_does_not_swallow_its_neighbours():
    """Leaves with three neighbours, the first of which all would join."""
    leaves = [f"leaf{i}" for i in range(40)]
    edges = [f"hub -> {leaf}" for leaf in leaves] + [f"{a} -> end{i}" for i in range(2) for a in leaves]
    problem = problem_of(["hub", *leaves, "end0", "end1"], edges)
    label = merge(problem, 8)
    assert label.max() + 1 == 8
    assert np.bincount(label).max() < 15
