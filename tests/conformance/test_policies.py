"""Every registered policy keeps what all placers promise; what policies promise beyond is in `tests/learned`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.small_policies import POLICIES, small_policy
from tfplace.search.place import search_placement
from tfplace.testing import make_graph, make_problem, make_topology
from tfplace.testing.placers import PlacerSuite, run_placer

SLOW = {"hierarchical": pytest.mark.slow}
"""Traces twice as long as `seq2seq`, around which a search is the same."""


class TestPolicies(PlacerSuite):
    """Each traces its network anew for every problem, which takes seconds: fewer seeds, and of what depends on the
    units of a problem alone, which are the same for every placer, one test."""

    test_never_worse_than_a_single_device = None
    test_everything_pinned = None
    test_ops_of_one_resource_stay_together = None
    test_ops_without_an_accelerator_kernel_go_to_the_host = None
    test_disconnected_parts = None

    @pytest.fixture(params=[pytest.param(name, marks=SLOW.get(name, ())) for name in POLICIES])
    def placer(self, request):
        return small_policy(request.param)

    @pytest.mark.parametrize("seed", [0, 1])
    def test_devices_are_allowed(self, placer, seed):
        super().test_devices_are_allowed(placer, seed)

    @pytest.mark.parametrize("seed", [0])
    def test_same_seed_and_budget_same_answer(self, placer, seed):
        super().test_same_seed_and_budget_same_answer(placer, seed)

    @pytest.mark.parametrize("evaluations", [1, 7])
    def test_small_budgets_end_in_a_placement(self, placer, evaluations):
        super().test_small_budgets_end_in_a_placement(placer, evaluations)

    @pytest.mark.parametrize("devices", [1])
    def test_one_op(self, placer, devices):
        super().test_one_op(placer, devices)

    @pytest.mark.parametrize("seconds", [0.0, 1e12])
    def test_ties_zeros_and_extremes(self, placer, seconds):
        super().test_ties_zeros_and_extremes(placer, seconds)


@pytest.mark.parametrize("name", POLICIES)
def test_the_host_is_a_last_resort(name):
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    graph = make_graph(dict.fromkeys("abcdef", 100), ["a -> b", "b -> c", "c -> d", "d -> e", "e -> f"])
    problem = make_problem(graph, topology, np.tile([10.0, 1.0, 1.0], (6, 1)))
    assert 0 not in run_placer(small_policy(name), problem)


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_but_constants(name):
    graph = make_graph({"a": 4, "b": 4}, replicable=["a", "b"])
    assert {*search_placement(make_problem(graph, make_topology(2)), placer=name, budget=5).devices} == {"a", "b"}
