"""Placers are not offered devices on which a unit never fits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tfplace.api import place
from tfplace.search.budget import Budget
from tfplace.search.place import search_placement
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import make_graph, make_problem, make_topology


def one_is_large():
    """Eight ops in a row; the result of one fits the host alone, all others fit together anywhere."""
    ops = {f"op{i}": 10 for i in range(8)} | {"op3": 500}
    graph = make_graph(ops, [f"op{i} -> op{i + 1}" for i in range(7)])
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], memory=[2000, 100, 100], bandwidth=1e6, latency=0.0)
    return make_problem(graph, topology, np.tile([10.0, 1.0, 1.0], (8, 1)))


@pytest.mark.parametrize("placer", ["single", "expert", "heft", "m_etf", "hill_climbing", "local_search", "auto"])
def test_what_fits_nowhere_else_is_with_the_host(placer):
    """op4 reads op3's result, so it is there too; the rest is quicker elsewhere."""
    placed = place(one_is_large(), placer=placer, budget=60, baselines=())
    host = {name for name, device in placed.devices.items() if "CPU" in device}
    assert host == {"op3", "op4"}


def test_a_study_has_the_problem_without_such_devices():
    problem = one_is_large()
    search = Search(problem, Budget(evaluations=10), 0)
    context = search.context("x")
    assert search.problem is problem
    assert context.problem.allowed.sum(axis=1).tolist() == [3, 3, 3, 1, 1, 3, 3, 3]
    key = context.key(np.ones(8, np.int32))
    assert key == Simulator(problem).key(np.ones(8, np.int32)), "it is evaluated all the same"


def test_what_counts_loads_says_nothing_of_room():
    problem = one_is_large()
    evaluator = PipelineLoads(problem)
    assert Search(problem, Budget(evaluations=10), 0, evaluator=evaluator).context("x").problem is problem


def test_a_start_is_moved_where_it_fits():
    problem = one_is_large()
    roomier = dataclasses.replace(problem, memory_limit=np.full(3, 2000))
    start = search_placement(roomier, placer="single", budget=10, baselines=())
    assert not any("CPU" in device for device in start.devices.values())
    for placer in ("local_search", "auto", "brkga"):
        again = search_placement(problem, placer=placer, budget=40, init=start, baselines=())
        assert again.cost.feasible
        assert "CPU" in again.devices["op3"]


def test_a_placer_may_answer_with_what_does_not_fit():
    problem = one_is_large()

    class Stubborn:
        citation = "none"

        def place(self, context):
            return np.ones(8, np.int32)

    chosen = Search(problem, Budget(evaluations=10), 0).run(Stubborn(), "stubborn")
    assert chosen.tolist() == [1] * 8
