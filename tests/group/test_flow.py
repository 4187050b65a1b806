"""Which edges a placement may have to pay for, and how much."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.group.flow import flow, mean_transfer_s
from tfplace.testing import make_graph, make_problem, make_topology


def test_back_edges_and_constants_are_left_out():
    graph = make_graph(
        {"k": 4, "a": 100, "b": 50, "c": 4},
        ["k -> a", "a -> b", "^a -> c", "b => a", "b -> c"],
        replicable=["k"],
        trips={"a": 3.0},
    )
    edges = flow(make_problem(graph, make_topology(2)))
    assert list(zip(edges.src.tolist(), edges.dst.tolist(), strict=True)) == [(1, 2), (1, 3), (2, 3)]
    assert edges.tensor.tolist() == [1, -1, 2]
    assert edges.size_bytes.tolist() == [100, 0, 50]
    assert edges.trips.tolist() == [3, 3, 1]


def test_transfers_are_averaged_over_pairs_and_repeat_with_trips():
    graph = make_graph({"a": 100, "b": 4}, ["a -> b"], trips={"a": 3.0})
    topology = make_topology(2, bandwidth={(0, 1): 100.0, (1, 0): 50.0}, latency={(0, 1): 1.0, (1, 0): 3.0})
    problem = make_problem(graph, topology)
    assert mean_transfer_s(problem, flow(problem)) == pytest.approx([3 * (2.0 + 1.5)])
    alone = make_problem(graph, make_topology(1))
    np.testing.assert_array_equal(mean_transfer_s(alone, flow(alone)), [0.0])
