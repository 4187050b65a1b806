"""Neighbours and clusters of small graphs."""

from __future__ import annotations

import numpy as np

from tfplace.group.vicinity import Vicinity, members
from tfplace.testing import make_graph, make_problem, make_topology


def test_neighbours_once_per_edge():
    graph = make_graph(dict.fromkeys("abc", 4), ["a -> b", "a -> c", "b -> c"])
    near = Vicinity(make_problem(graph, make_topology(2)))
    neighbours = np.split(near.near, near.first[1:-1])
    assert [sorted(of.tolist()) for of in neighbours] == [[1, 2], [0, 2], [0, 1]]
    assert [c.tolist() for c in near.clusters[0]] == [[0], [1], [2]]


def test_members_of_labels():
    assert [m.tolist() for m in members(np.array([1, 0, 1, 2], np.int32))] == [[1], [0, 2], [3]]
