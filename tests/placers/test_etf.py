"""ETF and m-ETF by hand, and where they are known to be best."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.placers.etf import Etf
from tfplace.placers.m_etf import MEtf
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def test_the_earliest_start_wins_not_the_earliest_finish():
    """b could start at once on the slow device, so it does."""
    graph = make_graph({"a": 0, "b": 0})
    problem = make_problem(graph, make_topology(2), np.array([[1.0, 9.0], [1.0, 9.0]]))
    assert Scheduler.of(problem).by_start().unit_device.tolist() == [0, 1]
    assert Scheduler.of(problem).by_order().unit_device.tolist() == [0, 0]


def test_a_fork_by_hand():
    """a makes 2 bytes at 1 B/s. b, more urgent, follows it at once; c waits 2 s for the other device or 3 for this."""
    graph = make_graph({"a": 2, "b": 0, "c": 0}, ["a -> b", "a -> c"])
    problem = make_problem(graph, make_topology(2, bandwidth=1.0, latency=0.0), [1.0, 3.0, 2.0])
    plan = Scheduler.of(problem).by_start()
    assert plan.unit_device.tolist() == [0, 0, 1]
    assert plan.start_s.tolist() == [0, 1, 3]


@pytest.mark.parametrize("serial", [False, True])
def test_chains_stay_and_independent_equal_ops_are_spread_evenly(serial):
    chain = make_graph({f"x{i}": 8 for i in range(6)}, [f"x{i} -> x{i + 1}" for i in range(5)])
    plan = Scheduler.of(make_problem(chain, make_topology(3))).by_start(serial=serial)
    assert (len({*plan.unit_device.tolist()}), plan.length_s) == (1, 6.0)
    equal = make_problem(make_graph(dict.fromkeys("abcdefgh", 0)), make_topology(4))
    plan = Scheduler.of(equal).by_start(serial=serial)
    assert (np.bincount(plan.unit_device).tolist(), plan.length_s) == ([2, 2, 2, 2], 2.0)


def test_m_etf_sees_that_transfers_wait_for_one_another():
    """Ten readers of ten tensors: free transfers would have three leave; in turn, 4 s each, only one is worth it."""
    names = [f"x{i}" for i in range(10)]
    graph = make_graph(dict.fromkeys(names, 4) | {f"y{i}": 0 for i in range(10)}, [f"x{i} -> y{i}" for i in range(10)])
    allowed = np.array([[True, False]] * 10 + [[True, True]] * 10)
    problem = make_problem(
        graph, make_topology(2, bandwidth=1.0, latency=0.0), [0.0] * 10 + [1.0] * 10, allowed=allowed
    )
    free, serial = (Scheduler.of(problem).by_start(serial=s) for s in (False, True))
    assert (free.unit_device[10:] == 1).sum() == 3
    assert (serial.unit_device[10:] == 1).sum() == 1
    assert Simulator(problem)(serial.unit_device).step_s == serial.length_s == 9.0
    assert Simulator(problem)(free.unit_device).step_s > free.length_s == 7.0


@pytest.mark.parametrize("placer", [Etf, MEtf])
def test_variables_that_fill_a_device_send_the_next_unit_on(placer):
    graph = make_graph(dict.fromkeys("abcd", ()), variables=dict.fromkeys("abcd", 60))
    problem = make_problem(graph, make_topology(2, memory=[200, 70]), np.tile([1.0, 1.0], (4, 1)))
    device = placer().place(Search(problem, Budget(evaluations=50), 0).context("x"))
    assert np.bincount(device).tolist() == [3, 1]


@pytest.mark.parametrize("placer", [Etf, MEtf])
@pytest.mark.parametrize("seed", range(3))
def test_the_answer_is_the_best_of_all_plans(placer, seed):
    problem = random_problem(np.random.default_rng(seed), 150, 3)
    search = Search(problem, Budget(evaluations=200), 0)
    key = Simulator(problem).key(placer().place(search.context("x")))
    assert key == search.best_key
    assert 1 <= search.evaluations <= 20
