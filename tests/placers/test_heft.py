"""HEFT against the paper's worked example, and what is known to be best."""

from __future__ import annotations

import numpy as np
import pytest

from tests.placers.topcuoglu import UPWARD, example
from tfplace.placers.heft import Heft
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def test_upward_ranks_of_the_paper():
    np.testing.assert_allclose(Scheduler.of(example()).rank, UPWARD, atol=1e-3)


def test_schedule_of_the_paper_takes_80():
    plan = Scheduler.of(example()).by_order()
    assert plan.length_s == 80
    assert plan.unit_device.tolist() == [2, 0, 2, 1, 2, 1, 2, 0, 1, 1]
    np.testing.assert_array_equal(plan.start_s, [0, 27, 9, 18, 28, 26, 38, 57, 56, 73])


def test_a_chain_goes_to_the_fastest_device():
    graph = make_graph({f"x{i}": 8 for i in range(6)}, [f"x{i} -> x{i + 1}" for i in range(5)])
    problem = make_problem(graph, make_topology(3), np.tile([2.0, 1.0, 3.0], (6, 1)))
    plan = Scheduler.of(problem).by_order()
    assert plan.unit_device.tolist() == [1] * 6
    assert plan.length_s == 6.0


def test_independent_equal_ops_are_spread_evenly():
    problem = make_problem(make_graph(dict.fromkeys("abcdefg", 0)), make_topology(3))
    plan = Scheduler.of(problem).by_order()
    assert sorted(np.bincount(plan.unit_device).tolist()) == [2, 2, 3]
    assert plan.length_s == 3.0


def test_a_unit_goes_where_its_first_op_went():
    graph = make_graph(
        {"read": 100, "left": 100, "right": 100, "update": ()},
        ["read -> left", "read -> right", "left -> update"],
        resource={"read": 0, "update": 0},
    )
    problem = make_problem(graph, make_topology(2, bandwidth=100.0, latency=0.0), [1.0, 3.0, 2.0, 1.0])
    plan = Scheduler.of(problem).by_order()
    assert plan.unit_device.tolist() == [0, 0, 1]
    assert plan.length_s == 5.0


def test_memory_turns_ops_away():
    graph = make_graph(dict.fromkeys("abcd", ()), variables=dict.fromkeys("abcd", 60))
    problem = make_problem(graph, make_topology(2, memory=[200, 70]), np.tile([5.0, 1.0], (4, 1)))
    assert np.bincount(Scheduler.of(problem).by_order().unit_device).tolist() == [3, 1]


@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_the_best_of_all_plans(seed):
    problem = random_problem(np.random.default_rng(seed), 150, 3)
    search = Search(problem, Budget(evaluations=200), 0)
    simulator = Simulator(problem)
    key = simulator.key(Heft().place(search.context("heft")))
    assert key == search.best_key
    assert key <= simulator.key(Scheduler.of(problem).by_order().unit_device)


def test_evaluations_are_few_where_memory_is_not_short():
    problem = random_problem(np.random.default_rng(0), 200, 3)
    search = Search(problem, Budget(evaluations=200), 0)
    Heft().place(search.context("heft"))
    assert 1 <= search.evaluations <= 20
