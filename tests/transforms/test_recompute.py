"""What is copied, what reads the copies, and what the copies wait for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfplace.core.graph import OpGraph
from tfplace.errors import GraphError
from tfplace.testing import make_graph
from tfplace.transforms.recomputable import recomputable_ops
from tfplace.transforms.recompute import recompute

G = "gradient_tape/"


def chain(count: int = 6, weight: str = "", size: int = 8, **options: Any) -> OpGraph:
    """Layers a0, a1, ... each of which reads the one before; the gradient of each reads its input and its result."""
    layers = [f"a{i}" for i in range(count)]
    ops = dict.fromkeys(["x", *layers, "loss", f"{G}loss", *(G + name for name in layers[::-1])], size)
    edges = [f"{u} -> {v}" for u, v in zip(["x", *layers], [*layers, "loss"], strict=True)]
    edges.append(f"loss -> {G}loss")
    for u, v, after in zip(["x", *layers], layers, [*layers[1:], "loss"], strict=False):
        edges += [f"{G}{after} -> {G}{v}", f"{u} -> {G}{v}", f"{v} -> {G}{v}"]
    if weight:  # the gradient of a weight reads the layer and the gradient that comes to its input
        ops[f"{G}weight"] = size
        edges += [f"{weight} -> {G}weight", f"{G}{weight} -> {G}weight"]
    types = dict.fromkeys(layers, "Relu") | {"x": "Placeholder", "loss": "L2Loss"} | options.pop("types", {})
    return make_graph(ops, edges, types=types, **options)


def named(graph: OpGraph, *names: str) -> list[int]:
    return [graph.index[name] for name in names]


def inputs(graph: OpGraph, name: str) -> list[str]:
    return [graph.op_names[graph.tensor_op[t]] for t in graph.inputs[graph.index[name]]]


def waits(graph: OpGraph, name: str) -> set[str]:
    on = (graph.edge_dst == graph.index[name]) & (graph.edge_tensor < 0)
    return {graph.op_names[u] for u in graph.edge_src[on]}


def test_gradients_read_copies_that_wait_for_the_gradient_which_comes_to_them():
    graph = chain()
    again = recompute(graph, [named(graph, "a1", "a2")])
    assert set(again.op_names) - set(graph.op_names) == {"a1/recomputed", "a2/recomputed"}
    assert inputs(again, "a1/recomputed") == ["a0"]
    assert inputs(again, "a2/recomputed") == ["a1/recomputed"]
    assert inputs(again, f"{G}a1") == [f"{G}a2", "a0", "a1/recomputed"]
    assert inputs(again, f"{G}a3") == [f"{G}a4", "a2/recomputed", "a3"]
    assert inputs(again, "a3") == ["a2"]
    assert waits(again, "a1/recomputed") == {f"{G}a4"}
    assert waits(again, "a2/recomputed") == set()


def test_segments_wait_for_readers_of_the_one_before_and_keep_what_is_between_them():
    """Of the readers, the gradient of a weight is none that the next segment would wait for anyway."""
    graph = chain(8, weight="a5")
    again = recompute(graph, [named(graph, "a1", "a2", "a3"), named(graph, "a4", "a5")])
    assert set(again.op_names) - set(graph.op_names) == {f"a{i}/recomputed" for i in (1, 2, 4, 5)}
    assert inputs(again, "a4/recomputed") == ["a3"]
    assert inputs(again, f"{G}a3") == [f"{G}a4", "a2/recomputed", "a3"]
    assert waits(again, "a4/recomputed") == {f"{G}a7"}
    assert waits(again, "a1/recomputed") == {f"{G}a4", f"{G}weight"}


def test_copies_are_bound_to_the_devices_of_their_originals():
    graph = chain(colocation={"a1": 0, "a3": 0})
    again = recompute(graph, [named(graph, "a1", "a2")])
    group = {name: int(again.colocation[again.index[name]]) for name in again.op_names}
    assert group["a1/recomputed"] == group["a1"] == group["a3"] >= 0
    assert group["a2/recomputed"] == group["a2"] >= 0
    assert group["a2"] != group["a1"]
    assert group["a4"] == -1


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("RandomUniform", {}),
        ("ReadVariableOp", {}),
        ("AssignVariableOp", {}),
        ("Const", {}),
        ("TensorListGetItem", {}),
        ("Relu", {"trips": {"a1": 3.0}}),
        ("Relu", {"resource": {"a1": 0, "a2": 0}}),
        ("Relu", {"types": {"a0": "VariableV2"}}),
        ("Relu", {"types": {"a0": "Switch"}}),
    ],
)
def test_what_might_have_another_result_is_never_copied(kind, options):
    graph = chain(**{**options, "types": {"a1": kind} | options.get("types", {})})
    assert not recomputable_ops(graph)[graph.index["a1"]]
    with pytest.raises(GraphError, match="'a1'"):
        recompute(graph, [named(graph, "a1")])


def test_optimizers_and_gradients_are_no_forward_ops():
    ops = {"x": 8, "a": 8, "b": 8, "lr": 8, "rate": 8, f"{G}b": 8, "step": 8}
    edges = ["x -> a", "a -> b", f"b -> {G}b", "lr -> rate", "rate -> step", f"{G}b -> step"]
    graph = make_graph(ops, edges, types=dict.fromkeys(["a", "b", "rate", "step", f"{G}b"], "Relu"))
    assert np.flatnonzero(recomputable_ops(graph)).tolist() == named(graph, "a", "b")


def test_what_no_gradient_comes_to_is_kept():
    graph = chain(2)
    assert recompute(graph, [named(graph, "a0", "a1", "loss")]) is graph
    assert recompute(graph, []) is graph


def test_what_cannot_be_done_is_refused():
    graph = chain()
    with pytest.raises(GraphError, match="in two segments"):
        recompute(graph, [named(graph, "a1"), named(graph, "a1", "a2")])
    with pytest.raises(GraphError, match="recomputes ops already"):
        recompute(recompute(graph, [named(graph, "a1")]), [])


@st.composite
def training_steps(draw: Any) -> tuple[OpGraph, list[list[int]]]:
    """A forward pass of any shape, the gradient of each op, and segments of any ops."""
    count = draw(st.integers(2, 9))
    forward = [f"op{i}" for i in range(count)]
    outputs = {name: draw(st.integers(1, 2)) for name in forward}
    read: dict[str, list[str]] = {}
    for i, name in enumerate(forward):
        sources = draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        read[name] = [f"{forward[u]}:{draw(st.integers(0, outputs[forward[u]] - 1))}" for u in sources]
    ops = {name: [100] * size for name, size in outputs.items()} | {G + name: [100] for name in forward[::-1]}
    edges = [f"{tensor} -> {name}" for name in forward for tensor in read[name]]
    for name in forward:
        edges += [f"{G}{after} -> {G}{name}" for after in forward if any(t.startswith(f"{name}:") for t in read[after])]
        edges += [f"{tensor} -> {G}{name}" for tensor in read[name] if draw(st.booleans())]
        edges += [f"{name} -> {G}{name}"] * draw(st.integers(0, 1))
    kinds = st.sampled_from(("Relu", "Reshape", "Split", "StatelessRandomUniformV2", "ReadVariableOp"))
    graph = make_graph(
        ops, edges, types={name: draw(kinds) for name in forward} | {G + name: "Add" for name in forward}
    )
    possible = np.flatnonzero(recomputable_ops(graph)).tolist()
    segment = [draw(st.integers(-1, 2)) for _ in possible]
    return graph, [[v for v, i in zip(possible, segment, strict=True) if i == k] for k in range(3)]


@given(training_steps())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_graph_without_its_copies_is_the_original(step):
    graph, segments = step
    again = recompute(graph, segments)
    recomputes = np.full(again.num_ops, -1) if again.recomputes is None else again.recomputes
    original = [again.op_names[v if u < 0 else u] for v, u in enumerate(recomputes.tolist())]
    assert sorted(again.op_names[v] for v in np.flatnonzero(recomputes < 0)) == sorted(graph.op_names)
    late = {name for name in graph.op_names if name.startswith(G)}
    for v, name in enumerate(original):
        u = graph.index[name]
        assert again.op_types[v] == graph.op_types[u]
        assert again.op_attrs[v] == graph.op_attrs[u]
        facts = [(t.tensor_dtype, t.tensor_shape, t.tensor_bytes.tolist(), t.op_tensors) for t in (again, graph)]
        mine, theirs = (
            [(dtype[i], shape[i], size[i]) for i in range(offsets[w], offsets[w + 1])]
            for (dtype, shape, size, offsets), w in zip(facts, (v, u), strict=True)
        )
        assert mine == theirs
        read = [(original[again.tensor_op[t]], again.tensor_slot[t]) for t in again.inputs[v]]
        assert read == [(graph.op_names[graph.tensor_op[t]], graph.tensor_slot[t]) for t in graph.inputs[u]]
        reads_copies = {again.op_names[w] for t in again.inputs[v] if recomputes[w := again.tensor_op[t]] >= 0}
        assert not reads_copies or name in late or recomputes[v] >= 0


@given(training_steps())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_copy_runs_before_the_backward_pass_and_no_gradient_reads_what_is_copied(step):
    graph, segments = step
    again = recompute(graph, segments)
    if again.recomputes is None:
        return
    late = np.array([name.startswith(G) for name in again.op_names])
    behind = late.copy()
    for u, v in zip(again.edge_src.tolist(), again.edge_dst.tolist(), strict=True):  # by v
        behind[v] |= behind[u]
    copies = np.flatnonzero(again.recomputes >= 0)
    assert behind[copies].all()
    data = again.edge_tensor >= 0
    read_late = set(again.edge_src[data & late[again.edge_dst]].tolist())
    assert not read_late & set(again.recomputes[copies].tolist())
