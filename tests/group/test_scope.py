"""Layers by name as groups."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests import splitting
from tfplace.core.passes import is_backward
from tfplace.group.forward import forward_blocks
from tfplace.group.scope import scope
from tfplace.testing import make_graph, make_problem, make_topology


def training(layers=6):
    """A chain of dense layers in blocks of two, with gradients and updates."""
    ops, edges, variables, resource = {}, [], {}, {}
    above = []
    for i in range(layers):
        at = f"net/block{i // 2}/dense{i}"
        ops |= {f"{at}/w": 100, f"{at}/mul": 100}
        variables[f"{at}/w"] = 400
        edges.append(f"{at}/w -> {at}/mul")
        edges += [f"{above[-1]}/mul -> {at}/mul"] if above else []
        above.append(at)
    last = f"{above[-1]}/mul"
    for i in reversed(range(layers)):
        grad = f"gradient_tape/{above[i]}/grad"
        ops |= {grad: 100, f"sgd/update{i}": ()}
        edges += [f"{last} -> {grad}", f"{above[i]}/mul -> {grad}", f"{grad} -> sgd/update{i}"]
        resource |= {f"{above[i]}/w": i, f"sgd/update{i}": i}
        last = grad
    return make_problem(make_graph(ops, edges, variables=variables, resource=resource), make_topology(2))


def groups(problem, count):
    """op -> group"""
    label = scope(problem, count)[problem.grouping.unit_of]
    return dict(zip(problem.graph.op_names, label.tolist(), strict=True))


def test_gradients_and_updates_are_in_the_group_of_their_layer():
    found = groups(training(), 6)
    assert len({*found.values()}) == 6
    for i in range(6):
        at = f"net/block{i // 2}/dense{i}"
        mine = {found[op] for op in (f"{at}/w", f"{at}/mul", f"gradient_tape/{at}/grad", f"sgd/update{i}")}
        assert len(mine) == 1


def test_so_they_are_within_a_function_that_was_inlined():
    problem = training()
    plain = scope(problem, 6)
    graph = dataclasses.replace(problem.graph, op_names=tuple(f"PartitionedCall/{n}" for n in problem.graph.op_names))
    assert [is_backward(n) for n in graph.op_names] == [is_backward(n) for n in problem.graph.op_names]
    assert 0 < sum(map(is_backward, graph.op_names)) < graph.num_ops
    np.testing.assert_array_equal(scope(dataclasses.replace(problem, graph=graph), 6), plain)
    blocks = [forward_blocks(dataclasses.replace(problem, graph=g))[0].tolist() for g in (problem.graph, graph)]
    assert blocks[0] == blocks[1]


def test_scopes_are_cut_where_they_tell_enough_apart():
    found = groups(training(), 3)
    blocks = [{found[f"net/block{i // 2}/dense{i}/mul"] for i in (2 * b, 2 * b + 1)} for b in range(3)]
    assert all(len(block) == 1 for block in blocks)
    assert len(set.union(*blocks)) == 3


def test_consecutive_layers_are_joined_where_the_next_depth_tells_too_many_apart():
    found = groups(training(), 4)
    label = [found[f"net/block{i // 2}/dense{i}/mul"] for i in range(6)]
    assert len({*label}) == 4
    assert label == sorted(label)


def test_more_groups_than_layers_are_as_many_as_there_are_layers():
    assert len({*groups(training(), 50).values()}) == 6


def test_names_that_tell_nothing():
    names = [f"op{i}" for i in range(20)]
    problem = make_problem(
        make_graph(dict.fromkeys(names, 4), [f"op{i} -> op{i + 1}" for i in range(19)]), make_topology(2)
    )
    label = scope(problem, 5)
    assert label.max() == 4
    assert np.all(np.diff(label) >= 0)


def test_scopes_of_constants_alone_tell_nothing():
    names = ["a/c", "b/c", *(f"op{i}" for i in range(4))]
    edges = ["a/c -> op0", "b/c -> op1", "op0 -> op1", "op1 -> op2", "op2 -> op3"]
    problem = make_problem(make_graph(dict.fromkeys(names, 4), edges, replicable=names[:2]), make_topology(2))
    assert scope(problem, 2).max() == 1


def test_a_layer_of_a_split_step_is_one_group_with_its_copies_of_all_slices():
    found = groups(make_problem(splitting.split(), make_topology(2)), 2)
    dense, out = ({found[f"slice{k}/net/{layer}/mul"] for k in range(2)} for layer in ("dense", "out"))
    assert len(dense) == len(out) == 1 and dense != out
    assert found["net/dense/w"] in dense and found["net/out/v"] in out
