"""Single and round robin, and what all placers share."""

from __future__ import annotations

import numpy as np

from tfplace.group.unit_graph import variable_bytes
from tfplace.local_search.devices import compute_devices, settle, single_device
from tfplace.placers.round_robin import RoundRobin
from tfplace.placers.single import Single
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.testing import make_graph, make_problem, make_topology


def problem(**settings):
    graph = make_graph(
        dict.fromkeys("abcd", 4), ["a -> b"], resource={"a": 0, "b": 0}, variables={"a": 32}, cpu_only=["d"]
    )
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], speed=[0.1, 0.5, 1], **settings)
    return make_problem(graph, topology, np.array([[9.0, 2.0, 1.0]] * 3 + [[0.5, 2.0, 1.0]]))


def context(p):
    return Search(p, Budget(evaluations=10), 0).context("x")


def test_units_sum_their_ops():
    assert problem().unit_seconds.tolist() == [[18, 4, 2], [9, 2, 1], [0.5, np.inf, np.inf]]
    assert variable_bytes(problem()).tolist() == [32, 0, 0]


def test_compute_devices_are_the_accelerators_if_any():
    assert compute_devices(problem()).tolist() == [1, 2]
    assert compute_devices(make_problem(make_graph({"a": 1}), make_topology(2, types="CPU"))).tolist() == [0, 1]


def test_settle_sends_what_may_not_stay_to_its_fastest_device():
    assert settle(problem(), np.array([1, 1, 1], np.int32)).tolist() == [1, 1, 0]


def test_single_takes_the_fastest_device_that_fits():
    assert single_device(problem(), 1).tolist() == [1, 1, 0]
    assert Single().place(context(problem())).tolist() == [2, 2, 0]
    small = problem(memory=[10_000, 10_000, 30])
    assert Single().place(context(small)).tolist() == [1, 1, 0]


def test_round_robin_deals_over_the_accelerators():
    assert RoundRobin().place(context(problem())).tolist() == [1, 2, 0]
