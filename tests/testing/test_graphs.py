import numpy as np
import pytest
from hypothesis import given, settings

from tfplace.core.problem import Problem
from tfplace.errors import GraphError
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_graph, random_problem
from tfplace.testing.strategies import placed_problems


def test_a_graph_in_words():
    graph = make_graph(
        {"w": 0, "a": (4, 8), "b": 2, "c": ()},
        ["a:1 -> b", "a -> b", "^b -> c", "b => a"],
        types={"b": "Identity"},
        variables={"w": 16},
        trips={"b": 3},
        cpu_only=["c"],
        fetches=["c"],
    )
    assert graph.op_types == ("VarHandleOp", "Op", "Identity", "Op")
    assert graph.edge_tensor.tolist() == [2, 1, -1, 3]
    assert graph.edge_slot.tolist() == [0, 1, -1, 0]
    assert graph.edge_back.tolist() == [False, False, False, True]
    assert graph.trips.tolist() == [1, 1, 3, 1]
    assert graph.has_kernel[:, 1].tolist() == [True, True, True, False]
    assert graph.variables[0].trainable


@pytest.mark.parametrize("edge", ["a -> x", "x -> a", "a:1 -> b", "a", "^a:0"])
def test_an_edge_to_nowhere_is_refused(edge):
    with pytest.raises(GraphError, match="edge"):
        make_graph({"a": 1, "b": 1}, [edge])


def test_a_setting_for_an_unknown_op_is_refused():
    with pytest.raises(GraphError, match="a setting for op 'x'"):
        make_graph({"a": 1}, trips={"x": 2})


def test_random_graphs_have_everything():
    graph = random_graph(np.random.default_rng(0), 500)
    assert {"Identity", "Switch", "IdentityN", "VarHandleOp", "ReadVariableOp", "Const"} <= set(graph.op_types)
    assert (graph.edge_tensor < 0).any()
    assert graph.edge_back.any()
    assert (graph.trips > 1).any()
    assert (graph.tensor_bytes == 0).any()
    assert np.bincount(graph.tensor_op).max() > 1
    assert not graph.has_kernel[:, 1].all()
    assert not graph.replicable[graph.edge_dst].any()
    assert len(graph.variables) == 2


def test_the_same_seed_gives_the_same_problem():
    one, two = (random_problem(np.random.default_rng(3), 100, 4) for _ in range(2))
    assert one.graph.fingerprint == two.graph.fingerprint
    assert one.topology.fingerprint == two.topology.fingerprint
    assert one.costs.fingerprint == two.costs.fingerprint


@pytest.mark.parametrize("seed", range(50))
def test_random_problems_have_allowed_devices(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, int(rng.integers(1, 60)), int(rng.integers(1, 6)), tight=True)
    assert problem.allowed[:, 0].all()
    problem.expand(random_devices(rng, problem))


def test_seconds_may_be_given_in_many_forms():
    graph, topology = make_graph({"a": 1, "b": 1}), make_topology(2)
    assert make_problem(graph, topology, 2.0).costs.compute_s.tolist() == [[2, 2], [2, 2]]
    assert make_problem(graph, topology, [1.0, 2.0]).costs.compute_s.tolist() == [[1, 1], [2, 2]]
    assert make_problem(graph, topology, {"b": 3.0}).costs.compute_s.tolist() == [[0, 0], [3, 3]]
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert make_problem(graph, topology, table).costs.compute_s.tolist() == table.tolist()


@settings(max_examples=50, deadline=None)
@given(placed_problems(max_ops=5, max_devices=2))
def test_drawn_problems_can_be_placed(placed):
    problem, unit_device = placed
    assert isinstance(problem, Problem)
    problem.expand(unit_device)
