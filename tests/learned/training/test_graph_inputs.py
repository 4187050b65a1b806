"""What policies see of a graph: whole, finite, in order, and the same however fast everything is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tfplace.core.costs import CostTable
from tfplace.core.topology import Topology
from tfplace.group.arrays import problem_from_arrays
from tfplace.learned.features.graph_inputs import DEVICE_FEATURES, GRAPH_FEATURES, UNIT_FEATURES, WAVES, graph_inputs
from tfplace.learned.features.unit_features import unit_edges
from tfplace.testing import make_topology, random_problem
from tfplace.testing.graphs import random_graph

SPEED = 3 + WAVES
"""The column of devices that tells it."""

problems = st.builds(
    lambda seed, ops, devices, tight: random_problem(np.random.default_rng(seed), ops, devices, unit=1e-3, tight=tight),
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.integers(1, 5),
    st.booleans(),
).filter(lambda problem: problem.num_units > 0)


@settings(deadline=None)
@given(problems)
def test_everything_is_finite_and_of_the_right_size(problem):
    inputs, units, devices = graph_inputs(problem), problem.num_units, problem.num_devices
    assert inputs.units.shape == (units, UNIT_FEATURES)
    assert inputs.devices.shape == (devices, DEVICE_FEATURES)
    assert inputs.graph.shape == (GRAPH_FEATURES,)
    assert inputs.pairs.shape == inputs.prior.shape == (units, devices)
    assert all(np.isfinite(array).all() for array in inputs)
    assert np.abs(inputs.units).max(initial=0) < 20
    assert inputs.weight.sum() == pytest.approx(1, abs=1e-5) or problem.unit_seconds.min(axis=1).sum() == 0
    assert ((inputs.prior < -1e6) == ~problem.allowed[inputs.order]).all()


@settings(deadline=None)
@given(problems)
def test_rows_are_units_in_another_order(problem):
    inputs = graph_inputs(problem)
    assert sorted(inputs.order.tolist()) == list(range(problem.num_units))
    devices = np.random.default_rng(0).integers(problem.num_devices, size=(3, problem.num_units))
    np.testing.assert_array_equal(inputs.units_of(inputs.rows_of(devices)), devices)
    src, dst = unit_edges(problem)
    edges = {(int(inputs.order[a]), int(inputs.order[b])) for a, b in zip(inputs.src, inputs.dst, strict=True)}
    assert edges == set(zip(src.tolist(), dst.tolist(), strict=True))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60))
def test_rows_are_in_topological_order_where_units_are_ops(seed, ops):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, ops, constants=0.0, cpu_only=0.0, variables=0)
    problem = random_problem(rng, graph=graph, num_devices=3, unit=1e-3)
    inputs = graph_inputs(problem)
    assume(problem.num_units == graph.num_ops)
    assert (inputs.src < inputs.dst).all()


@pytest.mark.parametrize("factor", [0.1, 7.0])
def test_a_machine_that_is_slower_in_everything_looks_the_same(factor):
    problem = random_problem(np.random.default_rng(3), 40, 3, unit=1e-3)
    data = problem.topology.to_dict()
    for link in data["links"]:
        link["bandwidth"] /= factor
        link["latency"] *= factor
        for overhead in ("send_overhead", "receive_overhead", "send_seconds_per_byte", "receive_seconds_per_byte"):
            if overhead in link:
                link[overhead] *= factor
    slower = dataclasses.replace(
        problem,
        topology=Topology.from_dict(data),
        costs=CostTable(problem.costs.compute_s * factor, problem.costs.provenance),
    )
    one, other = graph_inputs(problem), graph_inputs(slower)
    for name in one._fields:
        if name != "devices":
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-3, atol=1e-3, err_msg=name)
    np.testing.assert_allclose(one.devices, other.devices, rtol=1e-3, atol=1e-3)


def test_a_device_on_which_ops_may_not_be_is_not_taken_for_the_fastest():
    """Its speed is told by what others take, and does not depend on the unit of time."""
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    slow = problem_from_arrays(np.tile([4.0, 1.0, 1.0], (9, 1)), [], topology)
    none = problem_from_arrays(np.tile([np.inf, 1.0, 1.0], (9, 1)), [], topology)
    one = problem_from_arrays(np.vstack([np.tile([np.inf, 1.0, 1.0], (8, 1)), [[4.0, 1.0, 1.0]]]), [], topology)
    (cpu, gpu, _), *others = (graph_inputs(problem).devices[:, SPEED] for problem in (slow, none, one))
    assert cpu > gpu
    for cpu_s, gpu_s, _ in others:
        assert gpu == gpu_s <= cpu_s < cpu
