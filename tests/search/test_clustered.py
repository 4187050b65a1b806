"""A compiled step runs cluster by cluster: nothing leaves a cluster before its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tfplace.core.compilation import XLA
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.group.problem import formulate
from tfplace.search.clustered import clustered_cost, timeline_as_run
from tfplace.search.ordered import STRETCHED, best_order
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import DEFAULT
from tfplace.testing import make_graph, make_problem, make_topology

LENGTH = 8


def two_chains():
    """Chains a and b of ops of a second each, a device for each; b0 reads what a0 makes."""
    ops = {f"{chain}{i}": 4 for chain in "ab" for i in range(LENGTH)}
    edges = [f"{chain}{i} -> {chain}{i + 1}" for chain in "ab" for i in range(LENGTH - 1)] + ["a0 -> b0"]
    graph = make_graph(ops, edges, types=dict.fromkeys(ops, "Tanh"))
    seconds = np.ones((graph.num_ops, 2))
    problem = formulate(graph, make_topology(2), CostTable(seconds, ("given",) * graph.num_ops), Constraints())
    device = np.array([int(name.startswith("b")) for name in graph.op_names], np.int32)
    return replace(problem, compile=XLA), device


def test_what_a_cluster_makes_is_there_when_it_ends():
    problem, device = two_chains()
    assert Simulator(problem).devices(device).step_s == pytest.approx(1 + LENGTH, rel=1e-3)
    cost = clustered_cost(problem, device, None, DEFAULT)
    assert cost.step_s == pytest.approx(2 * LENGTH, rel=1e-3)
    assert cost.compute_s.tolist() == pytest.approx([LENGTH, LENGTH])


def test_a_cluster_that_is_cut_lets_others_begin_before():
    problem, device = two_chains()
    halves = np.array([int(int(name[1:]) >= LENGTH // 2) for name in problem.graph.op_names], np.int32)
    cost = clustered_cost(problem, device, halves, DEFAULT)
    assert cost.step_s == pytest.approx(1.5 * LENGTH, rel=1e-3)
    best = best_order(problem, device, DEFAULT)
    assert best.order == STRETCHED and best.cost.step_s <= cost.step_s


def test_the_timeline_has_the_ops_of_a_cluster_one_after_the_other():
    problem, device = two_chains()
    timeline = timeline_as_run(problem, device, None)
    assert timeline.finish_s.max() == pytest.approx(clustered_cost(problem, device, None, DEFAULT).step_s)
    for here in (0, 1):
        ops = np.flatnonzero(device == here)
        assert np.allclose(timeline.start_s[ops][1:], timeline.finish_s[ops][:-1])
    (sent,) = timeline.moved_start_s
    assert sent == pytest.approx(LENGTH)


def test_on_one_device_it_is_the_ops_together():
    problem, device = two_chains()
    cost = clustered_cost(problem, np.zeros_like(device), None, DEFAULT)
    assert cost.step_s == pytest.approx(2 * LENGTH)


def test_a_constant_that_waits_for_a_cluster_is_copied():
    """Grappler has constants wait for what they were computed from: as one op they would close a circle."""
    ops = {"a0": 4, "a1": 4, "constant": 4} | {f"a{i}": 4 for i in range(2, LENGTH)}
    edges = [f"a{i} -> a{i + 1}" for i in range(LENGTH - 1)] + ["^a1 -> constant", "constant -> a5"]
    types = dict.fromkeys(ops, "Tanh") | {"constant": "Const"}
    graph = make_graph(ops, edges, types=types, replicable=["constant"])
    problem = formulate(
        graph, make_topology(2), CostTable(np.ones((graph.num_ops, 2)), ("given",) * graph.num_ops), Constraints()
    )
    device = np.array([int(name == f"a{LENGTH - 1}") for name in graph.op_names], np.int32)
    cost = clustered_cost(replace(problem, compile=XLA), device, None, DEFAULT)
    assert cost.step_s == pytest.approx(LENGTH, rel=1e-3)


def test_ops_of_made_graphs_may_lack_inputs_that_tensorflow_knows():
    ops = {"a": 4, "reshape": 4, "switch": (4, 4), "merge": 4, "b": 4}
    edges = ["a -> reshape", "switch -> b", "merge -> b"]
    types = {"a": "Tanh", "reshape": "Reshape", "switch": "Switch", "merge": "Merge", "b": "Add"}
    problem = make_problem(make_graph(ops, edges, types=types), make_topology(2))
    device = np.array([0, 0, 1, 1, 1], np.int32)
    assert clustered_cost(replace(problem, compile=XLA), device, None, DEFAULT).step_s == pytest.approx(3, rel=1e-3)
