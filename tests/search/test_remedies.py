"""What plans do about steps that do not fit: what is on the host, computed again or sliced, alone and together."""

from __future__ import annotations

import math
from dataclasses import replace

import keras
import numpy as np
import pytest

import tfplace
from tfplace.core.compilation import NONE
from tfplace.core.plan import ALONE, Plan, PlanRow
from tfplace.core.topology import Topology
from tfplace.formatting import format_bytes
from tfplace.local_search.devices import single_device
from tfplace.report.plan_table import verdict
from tfplace.search.on_host import SLOTS, VARIABLES, held_by_host, on_host
from tfplace.search.remedies import Pricing, remedied
from tfplace.simulation.evaluate import Simulator
from tfplace.sources import made_to_fit
from tfplace.testing.problems import make_topology

LARGE, SMALL = 4096, 64
"""Examples with which activations, or weights and slots, take most of the memory."""


def host_and_gpus(count=1) -> Topology:
    types, memory = ["CPU"] + ["GPU"] * count, [2**36] + [2**34] * count
    return make_topology(count + 1, types=types, memory=memory, speed=[0.02] + [1.0] * count)


def step_of(width, layers=6):
    keras.utils.set_random_seed(0)
    hidden = [layer for _ in range(layers) for layer in (keras.layers.Dense(width), keras.layers.Activation("gelu"))]
    model = keras.Sequential([keras.Input((256,)), *hidden, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, jit_compile=False)
    return model


def batch_of(examples):
    return np.zeros((examples, 256), np.float32), np.zeros(examples, np.int32)


@pytest.fixture(scope="module")
def heavy(logical_cpus):
    """A step whose weights and slots are most of what it takes."""
    return tfplace.formulate(tfplace.extract(step_of(512), batch_of(SMALL)), host_and_gpus())


def on_gpu(problem, what, part):
    """What there is of a step on the GPU with so much of the memory that it would take, with something on the host."""
    units = single_device(problem, 1)
    peak = int(Simulator(problem)(units).peak_bytes[1])
    tight = replace(problem, memory_limit=np.array([2**36, int(part * peak)]))
    found = on_host(tight, tight.expand(units), what, Simulator(tight))
    assert found is not None
    return tight, tight.expand(found), Simulator(tight)(found)


def test_slots_on_the_host_leave_the_weights_on_the_gpu(heavy):
    problem, devices, cost = on_gpu(heavy, SLOTS, 0.6)
    assert cost.feasible and held_by_host(problem, devices) == SLOTS
    of = {kind: [v for v in problem.graph.variables if v.trainable == kind] for kind in (True, False)}
    assert {int(devices[v.op]) for v in of[True]} == {1}
    there = sum(v.size_bytes for v in of[False] if devices[v.op] == 0)
    assert there > 0.3 * sum(v.size_bytes for v in of[False])


def test_updates_run_beside_their_slots_and_products_of_the_backward_pass_do_not(heavy):
    problem, devices, _ = on_gpu(heavy, VARIABLES, 0.1)
    types = np.array(problem.graph.op_types)
    assert held_by_host(problem, devices) == VARIABLES
    assert (devices[types == "MatMul"] == 1).all() and (devices[types == "AssignSubVariableOp"] == 0).all()
    of_adam = np.array(["adam" in name.lower() for name in problem.graph.op_names])
    squares = devices[of_adam & (types == "Square")]  # of gradients, which are sent anyway
    assert len(squares) and (squares == 0).all()


def test_no_more_is_on_the_host_than_has_to_be(heavy):
    held = [
        sum(v.size_bytes for v in heavy.graph.variables if devices[v.op] == 0)
        for _, devices, _ in (on_gpu(heavy, SLOTS, part) for part in (0.95, 0.8, 0.6))
    ]
    assert 0 < held[0] < held[1] < held[2]


def test_there_is_nothing_to_move_without_a_host(heavy):
    alone = tfplace.formulate(heavy.graph, make_topology(1))
    assert on_host(alone, alone.expand(single_device(alone, 0)), SLOTS, Simulator(alone)) is None


def tight_plan(width, examples, part) -> Plan:
    """Of a step that is not split, with so much of the GPU's memory as it would take."""
    graph, box = tfplace.extract(step_of(width), batch_of(examples)), host_and_gpus()
    problem = tfplace.formulate(graph, box)
    limit = int(part * Simulator(problem)(single_device(problem, 1)).peak_bytes[1])
    return tfplace.plan(graph, box, max_memory={"GPU:*": limit}, budget="5 evaluations", progress=False, compile=NONE)


def test_a_row_tells_its_remedies_and_costs_what_its_placement_does():
    plan = tight_plan(512, SMALL, 0.7)
    hosted = [row for row in plan.rows if row.way == ALONE and row.host]
    assert {row.remedies for row in hosted} == {("slots on the host",), ("variables on the host",)}
    assert all(row.cost.feasible and row.name.startswith("one device (GPU:0)") for row in hosted)
    for row in hosted:
        again = tfplace.simulate(row.placement.problem, row.placement)
        assert again.step_s == pytest.approx(row.cost.step_s) and again.feasible


def test_remedies_are_taken_together_where_none_alone_suffices():
    plan = tight_plan(256, LARGE, 0.4)
    assert plan.chosen.remedies == ("slots on the host", "recomputing")
    assert "fits with slots on the host and recomputing; takes 1." in plan.summary()
    assert not any(row.cost.feasible for row in plan.rows if row.way == ALONE and len(row.remedies) == 1)


@pytest.mark.parametrize("placer", ["data_parallel", "one_f_one_b"])
def test_results_are_computed_again_in_slices_on_several_devices(placer):
    graph, box = tfplace.extract(step_of(256), batch_of(LARGE), slices=4), make_topology(4)
    ample = tfplace.place(graph, box, placer=placer, baselines=(), budget="5 evaluations", progress=False)
    limit = int(0.6 * ample.cost.peak_bytes.max())
    problem = tfplace.formulate(graph, box, max_memory={"GPU:*": limit})
    misfit = replace(ample, problem=problem, cost=tfplace.simulate(problem, ample))
    row = PlanRow(placer, graph.slices.sizes, NONE, misfit.cost, misfit)
    (found,) = remedied([row], Pricing(made_to_fit, lambda problem, units, way: []), math.inf)
    assert found.remedies == ("recomputing",) and found.cost.feasible and found.cost.peak_bytes.max() <= limit
    assert found.cost.step_s < 1.3 * ample.cost.step_s
    assert tfplace.simulate(found.placement.problem, found.placement).step_s == pytest.approx(found.cost.step_s)


def test_what_comes_nearest_is_told_with_its_bytes_where_nothing_fits():
    graph = tfplace.extract(step_of(256, layers=2), batch_of(LARGE))
    plan = tfplace.plan(graph, make_topology(1), max_memory={"GPU:0": 2**18}, budget="5 evaluations", progress=False)
    nearest = plan.rows[0]
    assert plan.chosen is None and nearest.recomputes
    assert nearest.cost.excess_bytes < min(row.cost.excess_bytes for row in plan.rows[1:])
    assert f"needs {format_bytes(int(nearest.cost.peak_bytes[0]))} on GPU:0" in verdict(plan)
