"""Problems from plain arrays."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.core.constraints import Constraints
from tfplace.errors import ConstraintError, GraphError
from tfplace.group.arrays import problem_from_arrays, topological_order
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_topology

TWO = make_topology(2, bandwidth=10.0, latency=0.5)


def ones(count, devices=2):
    return np.ones((count, devices))


def test_a_chain_takes_its_seconds_and_one_transfer():
    problem = problem_from_arrays([[1, 2], [3, 4], [5, 6]], [[0, 1], [1, 2]], TWO, edge_bytes=[20, 30])
    simulator = Simulator(problem)
    assert simulator([0, 0, 0]).step_s == 9
    assert simulator([0, 1, 1]).step_s == 1 + (0.5 + 2) + 4 + 6


def test_readers_of_one_output_share_a_tensor_which_is_sent_once():
    problem = problem_from_arrays(ones(3), [[0, 1], [0, 2]], TWO, edge_bytes=20)
    assert problem.graph.num_tensors == 1
    assert Simulator(problem)([0, 1, 1]).moved_bytes == 20


def test_outputs_can_be_told_apart():
    problem = problem_from_arrays(ones(3), [[0, 1], [0, 2]], TWO, edge_bytes=[20, 40], edge_output=[0, 1])
    assert problem.graph.tensor_bytes.tolist() == [20, 40]
    assert Simulator(problem)([0, 1, 1]).moved_bytes == 60


def test_memory_is_held_all_the_time():
    problem = problem_from_arrays(ones(2), [], TWO, memory_bytes=[7, 5])
    assert Simulator(problem)([1, 1]).peak_bytes.tolist() == [0, 12]


def test_trips_multiply_what_is_sent():
    problem = problem_from_arrays(ones(2), [[0, 1]], TWO, edge_bytes=10, trips=[4, 1])
    assert Simulator(problem)([0, 1]).step_s == 1 + 4 * (0.5 + 1) + 1


def test_groups_are_units():
    problem = problem_from_arrays(ones(4), [], TWO, groups=[5, -1, 5, -1])
    assert problem.grouping.unit_of.tolist() == [0, 1, 0, 2]


def test_infinite_seconds_and_allowed_say_where_ops_may_be():
    seconds = [[1, np.inf], [1, 1], [1, 1]]
    problem = problem_from_arrays(seconds, [], TWO, allowed=[[True, True], [False, True], [True, True]])
    assert problem.allowed.tolist() == [[True, False], [False, True], [True, True]]
    assert np.isfinite(problem.costs.compute_s).all()


def test_a_group_may_be_where_all_of_it_may_be():
    problem = problem_from_arrays([[1, np.inf], [1, 1]], [], TWO, groups=[0, 0])
    assert problem.allowed.tolist() == [[True, False]]


def test_ops_are_put_in_a_topological_order():
    problem = problem_from_arrays(
        [[1, 1], [2, 2], [3, 3]], [[2, 0], [0, 1]], TWO, op_names=["a", "b", "c"], memory_bytes=[1, 2, 3]
    )
    assert problem.graph.op_names == ("c", "a", "b")
    assert problem.costs.compute_s[:, 0].tolist() == [3, 1, 2]
    assert problem.graph.persistent_bytes.tolist() == [3, 1, 2]


def test_constraints_are_by_name():
    rules = Constraints(pin={"b": "GPU:1"})
    problem = problem_from_arrays(ones(2), [], TWO, op_names=["a", "b"], constraints=rules)
    assert problem.allowed.tolist() == [[True, True], [False, True]]


def test_a_preset_and_no_edges():
    assert problem_from_arrays(ones(2, 3), [], "2xP100").num_devices == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"compute_s": ones(2, 3)}, "compute_s of shape (2, 3)"),
        ({"compute_s": [[1, np.nan], [1, 1]]}, "or NaN"),
        ({"edges": [[0, 1, 2]]}, "edges of shape (1, 3)"),
        ({"edges": [[0, 2]]}, "edges between ops 0 to 2"),
        ({"edges": [[0, 1], [1, 0]]}, "a cycle"),
        ({"edges": [[0, 1]], "edge_bytes": [1, 2]}, "edge_bytes of shape (2,)"),
        ({"edges": [[0, 1]], "edge_bytes": [0.5]}, "edge_bytes that are not all whole numbers of type int64"),
        ({"edges": [[0, 1]], "edge_output": -1}, "edge_output -1"),
        ({"edges": [[0, 1], [0, 1]], "edge_bytes": [1, 2]}, "1 and 2 bytes for output 0 of op 0"),
        ({"memory_bytes": [-1, 0]}, "negative memory_bytes"),
        ({"memory_bytes": [10**30, 0]}, "memory_bytes of type object"),
        ({"memory_bytes": [1e30, 0]}, "memory_bytes that are not all whole numbers of type int64"),
        ({"trips": [np.nan, 1]}, "trips that are not all finite numbers"),
        ({"compute_s": [[1, 2], [1]]}, "compute_s with rows of unequal lengths"),
        ({"compute_s": [["a", "b"]]}, "compute_s of type"),
        ({"edges": [[0, 1.7]]}, "edges with ends that are not whole numbers"),
        ({"allowed": [[True]]}, "allowed of shape (1, 1)"),
        ({"op_names": ["a"]}, "1 op names"),
        ({"groups": [0]}, "groups of shape (1,)"),
    ],
)
def test_wrong_arrays_are_named(arguments, text):
    with pytest.raises(GraphError, match=re.escape(text)):
        problem_from_arrays(**({"compute_s": ones(2), "edges": [], "topology": TWO} | arguments))


def test_a_group_without_a_device_is_refused():
    with pytest.raises(ConstraintError, match="op0, op1"):
        problem_from_arrays([[1, np.inf], [np.inf, 1]], [], TWO, groups=[0, 0])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_the_order_in_which_ops_are_given_makes_no_difference(count, seed):
    """To loads of memory and seconds on devices; step times may differ, since ties go by op."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for b in range(count) for a in range(b) if rng.random() < 0.3]
    seconds = rng.random((count, 2))
    held = rng.integers(0, 9, count)
    shuffled = rng.permutation(count)
    place = np.argsort(shuffled)
    first = problem_from_arrays(seconds, pairs, TWO, memory_bytes=held, edge_bytes=4)
    second = problem_from_arrays(
        seconds[shuffled],
        [(place[a], place[b]) for a, b in pairs],
        TWO,
        memory_bytes=held[shuffled],
        edge_bytes=4,
        op_names=[f"op{v}" for v in shuffled],
    )
    devices = rng.integers(0, 2, count)
    named = {f"op{v}": devices[v] for v in range(count)}
    costs = [Simulator(p)([named[op] for op in p.graph.op_names]) for p in (first, second)]
    np.testing.assert_allclose(costs[0].compute_s, costs[1].compute_s)
    assert costs[0].moved_bytes == costs[1].moved_bytes


@given(st.integers(1, 10), st.data())
def test_topological_order(count, data):
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda p: p[0] < p[1])
    pairs = np.array(data.draw(st.lists(ends, max_size=15)) if count > 1 else [], np.int64).reshape(-1, 2)
    names = np.array(data.draw(st.permutations(range(count))))
    order = topological_order(count, names[pairs].reshape(-1, 2))
    place = {v: i for i, v in enumerate(order)}
    assert sorted(order) == list(range(count))
    assert all(place[a] < place[b] for a, b in names[pairs].reshape(-1, 2).tolist())
