import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from tfplace.core.graph import Variable
from tfplace.errors import GraphError
from tfplace.testing import make_graph
from tfplace.testing.strategies import graphs


@pytest.fixture
def graph():
    return make_graph(
        {"a": (4, 8), "b": 2, "c": ()},
        ["a:1 -> b", "a -> b", "^a -> c", "b => a"],
        variables={"a": 100},
        trips={"b": 2},
    )


def ints(*values):
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op_types": ("Op",)}, "op_types of length 1; expected length 3"),
        ({"op_attrs": ()}, "op_attrs of length 0"),
        ({"trips": np.ones(2)}, "trips of length 2"),
        ({"trips": np.array([1, np.inf, 1])}, "non-finite trips"),
        ({"tensor_bytes": np.zeros(5, np.int64)}, "tensor_bytes of length 5; expected length 3"),
        ({"tensor_bytes": np.array([1, -1, 1])}, "negative size"),
        ({"tensor_op": ints(0, 1, 0)}, "tensors out of order"),
        ({"tensor_op": ints(0, 0, 3)}, r"tensor_op with an index outside 0\.\.2"),
        ({"edge_slot": ints(0)}, "edge_slot of length 1; expected length 4"),
        ({"edge_tensor": ints(1, 0, -2, 2)}, r"edge_tensor with an index outside -1\.\.2"),
        ({"edge_tensor": ints(2, 0, -1, 2)}, "another op's tensor"),
        ({"edge_src": ints(0, 0, -1, 1)}, "edge_src with an index outside"),
        ({"edge_back": np.zeros(4, bool)}, "edge b -> a against the op order"),
        ({"op_names": ("a", "a", "c")}, "duplicate op names"),
        ({"has_kernel": np.ones((3, 1), bool)}, r"has_kernel of shape \(3, 1\); expected \[3, 2\]"),
        ({"variables": (Variable("w", 3, 8),)}, "variable 'w' of op 3"),
    ],
)
def test_a_broken_graph_is_refused(graph, change, message):
    with pytest.raises(GraphError, match=message):
        dataclasses.replace(graph, **change)


def test_a_graph_without_ops_is_refused():
    with pytest.raises(GraphError, match="a graph without ops; expected at least one op"):
        make_graph({})


def test_inputs_are_in_input_order_without_control_edges(graph):
    assert graph.inputs == ((2,), (1, 0), ())


def test_tensors_and_bytes_by_op(graph):
    assert graph.op_tensors.tolist() == [0, 2, 3, 3]
    assert graph.persistent_bytes.tolist() == [100, 0, 0]
    assert graph.index == {"a": 0, "b": 1, "c": 2}
    assert "3 ops, 3 tensors, 4 edges, 1 variables" in repr(graph)


def test_variables_of_one_handle_add_up(graph):
    two = dataclasses.replace(graph, variables=(Variable("v", 0, 1), Variable("w", 0, 2)))
    assert two.persistent_bytes.tolist() == [3, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"op_names": ("a", "b", "d")},
        {"op_types": ("Op", "Op", "NoOp")},
        {"tensor_bytes": np.array([4, 8, 3])},
        {"tensor_shape": ((2, 2), (8,), (2,))},
        {"edge_slot": ints(1, 0, -1, 0)},
        {"trips": np.array([1.0, 3.0, 1.0])},
        {"variables": ()},
    ],
)
def test_the_fingerprint_changes_with_what_is_computed(graph, change):
    assert dataclasses.replace(graph, **change).fingerprint != graph.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"colocation": ints(0, 0, -1)},
        {"resource": ints(0, 0, -1)},
        {"kernel_types": ("CPU", "TPU")},
        {"has_kernel": np.array([[True, False]] * 3)},
        {"host_memory": np.array([True, False, False])},
        {"replicable": np.array([True, False, False])},
        {"edge_back": np.array([False, False, False, True])},
        {"tensor_dtype": ("int32", "float32", "float32")},
        {"op_attrs": ({"backward": True}, {}, {})},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_content_changes_with_what_the_fingerprint_leaves_out(change):
    graph = make_graph({"a": (4, 8), "b": 2, "c": ()}, ["a:1 -> b", "a -> b", "^a -> c", "a -> c"])
    changed = dataclasses.replace(graph, **change)
    assert changed.content != graph.content
    assert changed.fingerprint == graph.fingerprint
    assert dataclasses.replace(graph, name="another").content == graph.content


def test_the_fingerprint_is_the_same_in_every_process(graph):
    assert graph.fingerprint == dataclasses.replace(graph, name="another").fingerprint
    assert make_graph({"a": 1}).fingerprint == "5d867e37916f9565"


def test_arrays_are_read_only(graph):
    with pytest.raises(ValueError, match="read-only"):
        graph.trips[0] = 5


def test_a_graph_of_plain_arrays_has_no_tensorflow_form(graph, tmp_path):
    with pytest.raises(GraphError, match=r"Use tfplace\.extract"):
        graph.save(str(tmp_path / "graph.meta"))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_drawn_graphs_hold_together(graph):
    assert len(graph.inputs) == graph.num_ops
    assert graph.op_tensors[-1] == graph.num_tensors
    assert sum(map(len, graph.inputs)) == (graph.edge_tensor >= 0).sum()
