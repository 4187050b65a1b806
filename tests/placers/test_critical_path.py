"""CPOP against the paper's worked example."""

from __future__ import annotations

import numpy as np

from tests.placers.topcuoglu import CRITICAL_PATH, DOWNWARD, example
from tfplace.placers.critical_path import critical_path, schedule
from tfplace.schedule.list_scheduling.ranks import downward_rank
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.testing import make_graph, make_problem, make_topology


def test_downward_ranks_of_the_paper():
    np.testing.assert_allclose(downward_rank(Scheduler.of(example()).tasks), DOWNWARD, atol=1e-3)


def test_critical_path_of_the_paper():
    scheduler = Scheduler.of(example())
    path = critical_path(scheduler, scheduler.rank + downward_rank(scheduler.tasks))
    assert (path + 1).tolist() == CRITICAL_PATH


def test_schedule_of_the_paper_takes_86():
    plan = schedule(Scheduler.of(example()))
    assert plan.length_s == 86
    assert {plan.unit_device[t - 1] for t in CRITICAL_PATH} == {1}


def test_the_path_goes_where_it_runs_fastest():
    graph = make_graph({"a": 8, "side": 8, "b": 8, "c": 8}, ["a -> b", "b -> c", "a -> side", "side -> c"])
    problem = make_problem(graph, make_topology(2), np.array([[1.0, 2], [0.5, 9], [9, 3], [1, 2]]))
    assert schedule(Scheduler.of(problem)).unit_device.tolist() == [1, 0, 1, 1]


def test_a_path_that_does_not_fit_one_device_is_broken_off():
    graph = make_graph(
        dict.fromkeys("abcd", ()), ["^a -> b", "^b -> c", "^c -> d"], variables=dict.fromkeys("abcd", 60)
    )
    problem = make_problem(graph, make_topology(2, memory=150))
    assert np.bincount(schedule(Scheduler.of(problem)).unit_device).tolist() == [2, 2]


def test_equal_paths_are_followed_to_the_end():
    """Rounding may make the ranks along one path differ; it is followed from reader to reader all the same."""
    graph = make_graph({f"x{i}": 7 for i in range(30)}, [f"x{i} -> x{i + 1}" for i in range(29)])
    scheduler = Scheduler.of(make_problem(graph, make_topology(3), np.full(30, 0.1)))
    assert len(critical_path(scheduler, scheduler.rank + downward_rank(scheduler.tasks))) == 30
