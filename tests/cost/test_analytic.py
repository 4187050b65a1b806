"""The roofline: whichever of arithmetic and memory is slower, per execution and per device."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.core.device import Device
from tfplace.core.topology import Topology
from tfplace.cost.analytic import EFFICIENCY, analytic_costs
from tfplace.testing import make_graph, make_topology

OVERHEAD = 5e-6  # of make_topology's devices: 10 TFLOP/s and 500 GB/s at speed 1


def square_matmul(n, **settings):
    """a x b -> c, all [n, n] float32; d is a view of c."""
    size = 4 * n * n
    graph = make_graph(
        {"a": size, "b": size, "c": size, "d": size},
        ["a -> c", "b -> c", "c -> d"],
        types={"a": "Placeholder", "b": "Placeholder", "c": "MatMul", "d": "Identity"},
        **settings,
    )
    return dataclasses.replace(graph, tensor_shape=((n, n),) * 4, tensor_dtype=("float32",) * 4)


def seconds(graph, op="c", topology=None):
    return analytic_costs(graph, topology or make_topology(1)).compute_s[graph.index[op], 0]


def test_large_product_is_bound_by_arithmetic():
    n = 4096
    assert seconds(square_matmul(n)) == pytest.approx(OVERHEAD + 2 * n**3 / (10e12 * EFFICIENCY["matmul"]))


def test_small_product_is_bound_by_memory():
    n = 64
    assert seconds(square_matmul(n)) == pytest.approx(OVERHEAD + 3 * 4 * n * n / 500e9)


def test_views_cost_the_overhead_alone():
    assert seconds(square_matmul(512), "d") == OVERHEAD


def test_executions_multiply():
    assert seconds(square_matmul(64, trips={"c": 7.0})) == pytest.approx(7 * seconds(square_matmul(64)))


def test_host_memory_and_replicable_constants():
    graph = square_matmul(64, host_memory=["c"])
    both = make_topology(2, types=["CPU", "GPU"])
    costs = analytic_costs(graph, both).compute_s[graph.index["c"]]
    assert costs[1] == OVERHEAD
    assert costs[0] > OVERHEAD
    assert seconds(make_graph({"k": 400, "r": 4}, ["k -> r"], replicable=["k"]), "k") == 0.0


def test_devices_differ_by_speed_and_by_dtype():
    graph = square_matmul(4096)
    slow_fast = analytic_costs(graph, make_topology(2, speed=[0.5, 1.0])).compute_s[2] - OVERHEAD
    assert slow_fast[0] == pytest.approx(2 * slow_fast[1])
    card = Device("GPU:0", "GPU", 2**34, {"float32": 1e13, "float16": 4e13}, 1e15, 0.0)
    half = dataclasses.replace(graph, tensor_dtype=("float16",) * 4)
    odd = dataclasses.replace(graph, tensor_dtype=("bfloat16",) * 4)
    topology = Topology("one", (card,))
    assert seconds(graph, topology=topology) == pytest.approx(4 * seconds(half, topology=topology))
    assert seconds(odd, topology=topology) == seconds(graph, topology=topology)


def test_a_slice_reads_what_it_writes():
    graph = make_graph({"big": 10**9, "part": 1000}, ["big -> part"], types={"part": "Slice"})
    assert seconds(graph, "part") == pytest.approx(OVERHEAD + 2000 / 500e9)


def test_provenance_names_the_rule():
    assert analytic_costs(square_matmul(8), make_topology(1)).provenance == (
        "analytic:nothing",
        "analytic:nothing",
        "analytic:matmul",
        "analytic:nothing",
    )


@given(n=st.integers(1, 300), more=st.integers(0, 100))
def test_never_cheaper_when_larger(n, more):
    assert seconds(square_matmul(n + more)) >= seconds(square_matmul(n))


def test_one_row_per_op_one_column_per_device():
    costs = analytic_costs(square_matmul(16), make_topology(3))
    assert costs.compute_s.shape == (4, 3)
    assert np.all(costs.compute_s >= 0)
