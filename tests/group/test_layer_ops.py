"""Layers of any graph: what names and dataflow tell, without TensorFlow."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from tests import splitting
from tfplace.core.constraints import match_layers, match_ops
from tfplace.testing import make_graph
from tfplace.testing.strategies import graphs


def training(prefix="", gradient="gradient_tape/"):
    """Two dense layers that an optimizer with a slot each updates, by names as Keras 3 counts them."""
    ops, edges, types, variables, resource = {f"{prefix}x": 8}, [], {}, {}, {}
    above = f"{prefix}x"
    for i, layer in enumerate(("wide_1", "wide_1_2")):
        at = f"{prefix}net_1/{layer}"
        ops |= {f"{at}/w": 0, f"adam/{i}/m": 0, f"{at}/Cast_1/Read": 8, f"{at}/mul": 8}
        edges += [f"{at}/w -> {at}/Cast_1/Read", f"{at}/Cast_1/Read -> {at}/mul", f"{above} -> {at}/mul"]
        variables |= {f"{at}/w": 40, f"adam/{i}/m": 40}
        above = f"{at}/mul"
    ops[f"{prefix}loss"] = 8
    edges.append(f"{above} -> {prefix}loss")
    above = f"{prefix}loss"
    for i, layer in reversed([*enumerate(("wide_1", "wide_1_2"))]):
        at, grad = f"{prefix}net_1/{layer}", f"{prefix}{gradient}net_1/{layer}/grad"
        ops |= {grad: 8, f"adam/{i}/scale": 8, f"adam/{i}/read_m": 8, f"adam/{i}/add": 8, f"adam/{i}/set_m": ()}
        ops |= {f"adam/{i}/set_w": ()}
        edges += [f"{above} -> {grad}", f"{at}/mul -> {grad}", f"{grad} -> adam/{i}/scale"]
        edges += [f"adam/{i}/m -> adam/{i}/read_m", f"adam/{i}/read_m -> adam/{i}/add"]
        edges += [f"adam/{i}/scale -> adam/{i}/add", f"adam/{i}/m -> adam/{i}/set_m", f"adam/{i}/add -> adam/{i}/set_m"]
        edges += [f"{at}/w -> adam/{i}/set_w", f"adam/{i}/add -> adam/{i}/set_w"]
        types |= {f"adam/{i}/set_m": "AssignVariableOp", f"adam/{i}/set_w": "AssignSubVariableOp"}
        above = grad
    trainable = [name for name in variables if "net_1" in name]
    return make_graph(ops, edges, types=types, variables=variables, trainable=trainable, resource=resource)


def layer_ops(graph):
    return {name: [graph.op_names[v] for v in ops] for name, ops in graph.layers.items()}


def test_gradients_slots_and_updates_are_in_the_layer_of_their_weight():
    """Variables here carry their scope's own names, so that scopes count as they are written."""
    found = layer_ops(training())
    assert list(found) == ["wide_1", "wide_1_2"]
    for i, ops in enumerate(found.values()):
        mine = [f"adam/{i}/{op}" for op in ("m", "scale", "read_m", "add", "set_m", "set_w")]
        assert {op for op in ops if op.startswith("adam")} == {*mine}
        assert sum("grad" in op for op in ops) == 1
        assert sum("net_1" in op for op in ops) == 4


def test_so_they_are_within_a_function_that_was_inlined():
    plain = training()
    called = training("StatefulPartitionedCall/PartitionedCall_1/")
    renamed = training(gradient="gradients/")
    for graph in (called, renamed):
        assert {n: v.tolist() for n, v in graph.layers.items()} == {n: v.tolist() for n, v in plain.layers.items()}


def test_the_batch_and_the_loss_are_in_none():
    assert not {"x", "loss"} & {op for ops in layer_ops(training()).values() for op in ops}


def test_a_graph_whose_names_tell_nothing_has_none():
    assert dict(make_graph({"a": 8, "b": 8}, ["a -> b"]).layers) == {}


def test_constants_that_are_copied_are_in_no_rule():
    graph = make_graph({"net/a/k": 4, "net/a/mul": 4, "net/b/mul": 4}, ["net/a/k -> net/a/mul"], replicable=["net/a/k"])
    assert graph.layers["a"].tolist() == [0, 1]
    assert match_ops("layer:a", graph) == [1]


def test_inner_layers_go_by_the_last_of_their_names_where_no_outer_one_does():
    graph = make_graph(dict.fromkeys(["net/enc/dense/mul", "net/dec/dense/mul", "net/dec/out/mul"], 4))
    assert match_layers("layer:dense", graph) == ["enc/dense", "dec/dense"]
    assert match_layers("layer:enc", graph) == ["enc"]
    assert match_ops("layer:enc", graph) == [0]
    assert match_layers("layer:d*", graph) == ["dec", "dec/dense", "dec/out"]


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_layers_are_a_tree_of_scopes(graph):
    """Scopes made of the graph's own ops: any names go."""
    names = tuple(f"net/{'/'.join(str(v % d) for d in (2, 3)[: v % 3])}/op{v}" for v in range(graph.num_ops))
    layers = type(graph)(**{**_fields(graph), "op_names": names}).layers
    for name, ops in layers.items():
        assert (np.diff(ops) > 0).all()
        outer = name.rpartition("/")[0]
        assert not outer or {*ops.tolist()} <= {*layers[outer].tolist()}
    outermost = [v for name, ops in layers.items() if "/" not in name for v in ops.tolist()]
    assert len(outermost) == len({*outermost})


def _fields(graph):
    return {name: getattr(graph, name) for name in type(graph).__dataclass_fields__}


def test_a_split_step_has_the_layers_of_the_unsplit_one_each_with_all_copies():
    graph, before = splitting.split(), splitting.whole()
    found = layer_ops(graph)
    assert [*found] == [*before.layers] == ["dense", "out"]
    for name, ops in layer_ops(before).items():
        assert {graph.base_names[graph.index[op]] for op in found[name]} == {*ops}
    assert {"slice0/net/dense/mul", "slice1/net/dense/mul", "net/dense/w"} < {*found["dense"]}
    assert "gradient_tape/net/dense/grad/combined" in found["dense"]
    assert not any("loss" in op for ops in found.values() for op in ops)
