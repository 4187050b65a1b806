"""The order of phases that an answer tells: the best that a program can keep to; and that all reports keep to it."""

import dataclasses

import numpy as np
import pytest

import tfplace
from tests.measuring import Measuring
from tests.placers.test_data_parallel import split_step
from tfplace.core.compilation import XLA
from tfplace.core.placement import CRITICAL_PATH, FREE
from tfplace.core.slices import Slices
from tfplace.errors import ApplyError
from tfplace.report.waiting import waits
from tfplace.search import ordered
from tfplace.search.ordered import best_order
from tfplace.search.place import search_placement
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import DEFAULT, ONE_F_ONE_B, PHASE_ORDERS, Options
from tfplace.testing.graphs import make_graph
from tfplace.testing.problems import make_problem, make_topology


@pytest.fixture
def pipeline():
    """Two slices through two stages, each slice's second op after its first; and its devices."""
    graph = split_step(2, [2**20] * 2)
    slices = np.array(graph.slices.slice_of) >= 0
    problem = make_problem(graph, make_topology(2), np.where(slices, 1.0, 0.01)[:, None].repeat(2, axis=1))
    return problem, np.array([int(name.startswith("w1") or name.endswith("op1")) for name in graph.op_names], np.int32)


@pytest.fixture
def apart():
    """Two ops of a second on one device, the second of which a third on another device waits for; and their devices."""
    graph = make_graph(dict.fromkeys(["beside", "first", "next"], 4), ["first -> next"])
    graph = dataclasses.replace(graph, slices=Slices((1,), np.zeros(3, np.int32), graph.op_names))
    return make_problem(graph, make_topology(2), np.ones((3, 2))), np.array([0, 0, 1], np.int32)


def key(problem, op_device, order):
    return Simulator(problem, Options(phase_orders=(order,))).devices(op_device).key


def test_the_best_order_is_told(pipeline):
    found = best_order(*pipeline, DEFAULT)
    assert found.cost.key == min(key(*pipeline, order) for order in (*DEFAULT.phase_orders, CRITICAL_PATH))
    assert found.cost.key == key(*pipeline, found.order)


def test_the_critical_path_is_told_where_it_is_better(apart):
    problem, op_device = apart
    found = best_order(problem, op_device, Options(phase_orders=(FREE,)))
    assert found.order == CRITICAL_PATH
    assert found.cost.key == key(problem, op_device, CRITICAL_PATH) < key(problem, op_device, FREE)
    assert Simulator(problem, phases=found.phases).devices(op_device).key == found.cost.key
    compiled = dataclasses.replace(problem, compile=XLA)
    assert best_order(compiled, op_device, Options(phase_orders=(FREE,))).order == FREE


def test_an_order_that_no_program_can_keep_to_is_passed_over(pipeline, monkeypatch):
    def refuse(graph, op_device, phases, devices):
        if phases is not None:
            raise ApplyError("phases", "none")

    monkeypatch.setattr(ordered, "phase_waits", refuse)
    found = best_order(*pipeline, Options(phase_orders=(ONE_F_ONE_B,)))
    assert (found.order, found.phases) == (FREE, None)
    assert found.cost.key == key(*pipeline, FREE)


def test_an_answer_has_the_cost_and_the_timeline_of_its_order(pipeline):
    problem, _ = pipeline
    placement = search_placement(problem, placer="one_f_one_b", budget=10, baselines=())
    assert (placement.phases is None) == (placement.order == FREE)
    assert placement.cost.key == key(problem, placement.op_device, placement.order)
    assert placement.timeline().finish_s.max() == placement.cost.step_s


@pytest.mark.parametrize("order", PHASE_ORDERS)
def test_a_placement_is_simulated_in_its_own_order_and_devices_alone_in_the_best(pipeline, order, tmp_path):
    problem, op_device = pipeline
    simulator = Simulator(problem, Options(phase_orders=(order,)))
    _, phases = simulator.phases(op_device)
    found = search_placement(problem, placer="single", budget=10, baselines=())
    cost = simulator.devices(op_device)
    placement = dataclasses.replace(found, op_device=op_device, phases=phases, order=order, cost=cost)
    placement.save(tmp_path / "placement.json")
    for source in (placement, tmp_path / "placement.json"):
        assert tfplace.simulate(problem, source).key == cost.key
    assert sum(one.seconds for one in waits(placement)) == pytest.approx(cost.step_s)
    best = min(key(problem, op_device, one) for one in DEFAULT.phase_orders)
    assert tfplace.simulate(problem, placement.devices).key == best


@pytest.mark.parametrize(("phases", "seconds"), [([5, 2, -1], 2), ([2, 5, -1], 3)])
def test_phases_of_ones_own_are_simulated_as_they_are(apart, phases, seconds):
    problem, op_device = apart
    found = search_placement(problem, placer="single", budget=10, baselines=())
    placement = dataclasses.replace(found, op_device=op_device, phases=np.array(phases), order="mine")
    step_s = tfplace.simulate(problem, placement).step_s
    assert step_s == placement.timeline().finish_s.max() == pytest.approx(seconds, abs=0.01)


def test_what_is_measured_without_phases_is_simulated_without_phases(pipeline):
    problem, _ = pipeline
    measured = search_placement(problem, placer="data_parallel", budget=10, baselines=(), evaluator=Measuring(problem))
    assert measured.order == FREE
    assert measured.predicted.key == key(problem, measured.op_device, FREE)
