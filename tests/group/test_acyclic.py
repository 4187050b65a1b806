"""Order among units and among groups."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.group.acyclic import is_acyclic, make_acyclic, precedence
from tfplace.group.flow import flow
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def chain(length, **settings):
    names = [f"op{i}" for i in range(length)]
    edges = [f"op{i} -> op{i + 1}" for i in range(length - 1)]
    return make_problem(make_graph(dict.fromkeys(names, 4), edges, **settings), make_topology(2))


def quotient(problem, label):
    """The graph of groups by the definition of `precedence`, with networkx."""
    order = precedence(problem)
    graph = nx.DiGraph()
    graph.add_nodes_from(label.tolist())
    graph.add_edges_from((a, b) for a, b in zip(label[order.src], label[order.dst], strict=True) if a != b)
    return graph


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), num_ops=st.integers(1, 60))
def test_precedence_leaves_out_only_what_closes_a_circle(seed, num_ops):
    problem = random_problem(np.random.default_rng(seed), num_ops)
    order = precedence(problem)
    assert sorted(order.order.tolist()) == [*range(problem.num_units)]
    assert np.all(order.rank[order.src] < order.rank[order.dst])
    edges, unit_of = flow(problem), problem.grouping.unit_of
    pairs = {(a, b) for a, b in zip(unit_of[edges.src].tolist(), unit_of[edges.dst].tolist(), strict=True) if a != b}
    kept = {*zip(order.src.tolist(), order.dst.tolist(), strict=True)}
    assert kept <= pairs
    whole = nx.DiGraph([*pairs])
    circles = {u: i for i, part in enumerate(nx.strongly_connected_components(whole)) for u in part}
    assert all(circles[a] == circles[b] and a > b for a, b in pairs - kept)


def test_a_variable_is_started_by_its_first_op_and_comes_where_it_is_needed():
    """Read for the second layer, updated at the end: a circle of units, which its update does not count for."""
    graph = make_graph(
        dict.fromkeys(["w", "x", "y", "read", "mul", "grad", "update"], 4),
        ["w -> read", "x -> y", "y -> mul", "read -> mul", "mul -> grad", "grad -> update", "w -> update"],
        resource={"w": 0, "read": 0, "update": 0},
    )
    problem = make_problem(graph, make_topology(2))
    order = precedence(problem)
    unit = dict(zip(graph.op_names, problem.grouping.unit_of.tolist(), strict=True))
    names = {u: op for op, u in reversed(unit.items())}
    assert (unit["grad"], unit["w"]) not in zip(order.src, order.dst, strict=True)
    assert [names[u] for u in order.order] == ["x", "y", "w", "mul", "grad"]


def test_groups_in_a_row_are_left_alone():
    problem = chain(9)
    label = np.repeat(np.arange(3, dtype=np.int32), 3)
    assert is_acyclic(problem, label)
    assert make_acyclic(problem, label).tolist() == label.tolist()


def test_a_group_that_waits_for_another_in_between_is_split():
    problem = chain(5)
    label = np.array([0, 0, 1, 0, 2], np.int32)
    assert not is_acyclic(problem, label)
    assert make_acyclic(problem, label).tolist() == [0, 0, 1, 2, 3]


def test_interleaved_chains_of_two_groups_are_split_as_little_as_can_be():
    """Forward and backward of two layers: a1 b1 b2 a2."""
    problem = chain(4)
    assert make_acyclic(problem, np.array([0, 1, 1, 0], np.int32)).tolist() == [0, 1, 1, 2]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), num_ops=st.integers(1, 60), groups=st.integers(1, 12))
def test_random_groups_become_acyclic(seed, num_ops, groups):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops)
    label = np.unique(rng.integers(groups, size=problem.num_units), return_inverse=True)[1].ravel().astype(np.int32)
    assert is_acyclic(problem, label) == nx.is_directed_acyclic_graph(quotient(problem, label))
    split = make_acyclic(problem, label)
    assert nx.is_directed_acyclic_graph(quotient(problem, split))
    whole = {g for part in nx.strongly_connected_components(quotient(problem, label)) if len(part) == 1 for g in part}
    for group in whole:
        assert len(np.unique(split[label == group])) == 1
