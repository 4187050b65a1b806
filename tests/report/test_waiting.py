"""What a step waits for, in words."""

import dataclasses

import numpy as np
import pytest

from tests.report import cases
from tfplace.core.critical_path import Waiting
from tfplace.registry import OBJECTIVES
from tfplace.report.waiting import waits, waits_line
from tfplace.search.place import search_placement
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def placed(problem, **settings):
    return search_placement(problem, placer="round_robin", budget=50, baselines=(), **settings)


def test_devices_and_links_by_their_seconds():
    """a, 4 s on the wire, then b and c one after the other."""
    graph = make_graph({"a": 4, "b": 0, "c": 0}, ["a -> b", "b -> c"])
    problem = make_problem(graph, make_topology(2, bandwidth=1.0, latency=0.0), {"a": 1.0, "b": 2.0, "c": 3.0})
    init = np.array([0, 1, 1], np.int32)
    placement = dataclasses.replace(placed(problem), op_device=problem.expand(init), cost=Simulator(problem)(init))
    assert waits(placement) == (
        Waiting("GPU:1", 5.0),
        Waiting("GPU:0 to GPU:1", 4.0, sends=True),
        Waiting("GPU:0", 1.0),
    )
    assert waits_line(placement) == "critical path: GPU:1 50 %, GPU:0 to GPU:1 40 %, GPU:0 10 %"
    assert waits_line(placement) in placement.summary()
    assert waits_line(placement) in placement._repr_html_()


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_are_the_step(seed):
    placement = placed(random_problem(np.random.default_rng(seed), 60, 4))
    assert sum(one.seconds for one in waits(placement)) == pytest.approx(placement.predicted.step_s)


def test_many_small_parts_are_told_together():
    placement = placed(random_problem(np.random.default_rng(1), 200, 4))
    assert waits_line(placement).count(" %") == 6
    assert " others " in waits_line(placement)


def test_nothing_is_said_without_a_problem_or_of_throughput():
    assert waits_line(cases.placement()) == ""
    assert "critical path" not in cases.placement().summary()
    problem = random_problem(np.random.default_rng(1), 30, 3)
    assert waits(placed(problem, evaluator=OBJECTIVES["throughput"](problem))) == ()


def test_nothing_is_said_of_a_step_that_is_simulated_by_other_rules():
    problem = random_problem(np.random.default_rng(1), 60, 3)
    placement = placed(problem, evaluator=Simulator(problem, Options(parallel=4)))
    assert placement.cost.step_s != Simulator(problem)(problem.gather(placement.op_device)).step_s
    assert waits(placement) == ()
