"""Costs of compiled steps: kernels of several ops, and what stays as it is."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.cost.test_profile import KEY
from tests.cost.test_profiled import MODEL, measured, topology
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs, arithmetic_s
from tfplace.cost.compiled import KERNEL_OVERHEAD_S, FusedStep, compiled_costs
from tfplace.cost.profile import Profile
from tfplace.cost.profiled import profiled_costs
from tfplace.cost.work import op_work
from tfplace.testing import make_graph
from tfplace.testing.strategies import graphs

BOX = Topology.preset("2xP100")
MB = 1_000_000
ELEMENTWISE = {"a": "Mul", "b": "Tanh", "c": "Relu"}


@pytest.fixture
def graph():
    """A product, three elementwise ops after it and a reduction of them; a string op that XLA does not know."""
    return make_graph(
        {"x": MB, "w": MB, "m": MB, "a": MB, "b": MB, "c": MB, "s": 8, "t": 8},
        ["x -> m", "w -> m", "m -> a", "a -> b", "b -> c", "c -> s", "s -> t"],
        types={"x": "Placeholder", "w": "Placeholder", "m": "MatMul", **ELEMENTWISE, "s": "Sum", "t": "AsString"},
    )


def ops(graph, names):
    return [graph.index[name] for name in names]


def test_a_kernel_costs_one_overhead_and_its_ends(graph):
    costs = compiled_costs(FusedStep(graph), BOX)
    for d, device in enumerate(BOX.devices):
        overhead = KERNEL_OVERHEAD_S if device.type == "CPU" else device.op_overhead_s
        flops_s = arithmetic_s(graph, device, op_work(graph))[ops(graph, "abcs")].sum()
        work_s = max(flops_s, (MB + 8) / device.memory_bandwidth)
        assert costs.compute_s[ops(graph, "abcs"), d].sum() == pytest.approx(overhead + work_s)


def test_what_is_not_compiled_costs_what_it_did(graph):
    costs, plain = compiled_costs(FusedStep(graph), BOX), analytic_costs(graph, BOX)
    same = ops(graph, "xwt")
    assert (costs.compute_s[same] == plain.compute_s[same]).all()
    assert costs.provenance[graph.index["t"]] == plain.provenance[graph.index["t"]]


def test_costs_say_what_is_fused(graph):
    provenance = compiled_costs(FusedStep(graph), BOX).provenance
    assert provenance[graph.index["m"]] == "analytic:compiled matmul"
    assert provenance[graph.index["b"]] == "analytic:fused elementwise"


def test_measured_kernels_shrink_by_the_traffic_that_is_left(graph):
    names = "xwmabcst"
    profile = Profile((measured(graph, dict.fromkeys(names, 1e-3)),))
    there = topology(MODEL)
    costs, plain = compiled_costs(FusedStep(graph), there, profile), profiled_costs(graph, there, profile)
    assert costs.compute_s[graph.index["m"], 0] == pytest.approx(plain.compute_s[graph.index["m"], 0])
    # a, b and c read and write, s reads and writes a number: of 7 MB there is one left
    assert costs.compute_s[ops(graph, "abcs"), 0].sum() == pytest.approx(4e-3 * (MB + 8) / (7 * MB + 8), rel=1e-3)
    assert costs.provenance[graph.index["a"]] == "profiled:fused"


@pytest.mark.parametrize("loops", [False, True])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(20))
def test_no_op_costs_more_than_by_itself(loops, graph):
    step = FusedStep(graph, loops=loops)
    costs, plain = compiled_costs(step, BOX), analytic_costs(graph, BOX)
    assert (costs.compute_s <= plain.compute_s * (1 + 1e-9)).all()  # none of these is among `SLOWER_ON_CPU`
    views = step.compiled & ~step.computes
    assert not costs.compute_s[views].any()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(20))
def test_ops_of_a_kernel_share_its_seconds(graph):
    step = FusedStep(graph)
    seconds = compiled_costs(step, BOX).compute_s
    for d, device in enumerate(BOX.devices):
        if device.type != "CPU":  # there is the overhead of an op also that of a kernel
            least = step.trips * device.op_overhead_s
            assert (step.total(seconds[:, d]) >= least * (1 - 1e-9)).all()


def test_devices_of_other_models_are_analytic(graph):
    profile = Profile((measured(graph, {"m": 1e-3}),))
    there = topology(MODEL, "another")
    other = compiled_costs(FusedStep(graph), there, profile).compute_s[:, 1]
    assert np.allclose(other, compiled_costs(FusedStep(graph), there).compute_s[:, 1])
    assert dataclasses.replace(there.devices[1], model=MODEL).model == KEY[0]
