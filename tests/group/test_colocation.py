"""What is joined into one unit."""

from __future__ import annotations

from tfplace.group.colocation import colocate
from tfplace.testing import make_graph

OPS = dict.fromkeys("abcdef", 4)


def units(graph, extra=()):
    return colocate(graph, extra).unit_of.tolist()


def test_free_ops_are_units_of_their_own():
    assert units(make_graph(OPS)) == [0, 1, 2, 3, 4, 5]


def test_resources_colocation_and_rules_join_across_each_other():
    graph = make_graph(OPS, resource={"a": 3, "d": 3}, colocation={"d": 0, "e": 0})
    assert units(graph) == [0, 1, 2, 0, 0, 3]
    assert units(graph, [[1, 4]]) == [0, 0, 1, 0, 0, 2]


def test_units_are_numbered_by_their_first_op():
    graph = make_graph(OPS, resource={"b": 1, "f": 1, "c": 0, "d": 0})
    assert units(graph) == [0, 1, 2, 2, 3, 1]
    assert colocate(graph).members[1].tolist() == [1, 5]


def test_replicable_constants_have_no_unit_unless_named():
    graph = make_graph(OPS, ["a -> b", "c -> d"], replicable=["a", "c"])
    assert units(graph) == [-1, 0, -1, 1, 2, 3]
    assert units(graph, [[0, 3]]) == [0, 1, -1, 0, 2, 3]
    assert units(graph, [[0]]) == [0, 1, -1, 2, 3, 4]


def test_a_colocated_constant_keeps_its_unit():
    graph = make_graph(OPS, replicable=["a", "f"], colocation={"a": 0, "b": 0})
    assert units(graph) == [0, 0, 1, 2, 3, -1]
