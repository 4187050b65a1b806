"""Nested scopes of graphs whose names tell everything, something and nothing."""

import numpy as np

from tfplace.group.nested import NestedScopes
from tfplace.testing import make_graph, make_problem, make_topology


def unrolled(layers=3, steps=4):
    """Cells of two ops and their gradients: layer by layer, step by step, and back."""
    ops, edges = {}, []
    for layer in range(layers):
        for step in range(steps):
            cell = f"net/layer_{layer}/step_{step}"
            ops |= {f"{cell}/MatMul": 4, f"{cell}/Tanh": 4, f"gradient_tape/{cell}/TanhGrad": 4}
            edges += [f"{cell}/MatMul -> {cell}/Tanh", f"{cell}/Tanh -> gradient_tape/{cell}/TanhGrad"]
            if step:
                edges.append(f"net/layer_{layer}/step_{step - 1}/Tanh -> {cell}/MatMul")
            if layer:
                edges.append(f"net/layer_{layer - 1}/step_{step}/Tanh -> {cell}/MatMul")
    return make_graph(ops, edges)


def named(graph, problem, units):
    return {graph.op_names[v] for u in units.tolist() for v in problem.grouping.members[u].tolist()}


def test_layers_then_steps_with_their_gradients():
    graph = unrolled()
    problem = make_problem(graph, make_topology(2))
    nested = NestedScopes(problem)
    assert [len(scopes) for scopes in nested.scopes] == [3, 12]
    unit = int(problem.grouping.unit_of[graph.index["net/layer_1/step_2/Tanh"]])
    for level, prefix in enumerate(["net/layer_1/", "net/layer_1/step_2/"]):
        wanted = {name for name in graph.op_names if prefix in name}
        assert named(graph, problem, nested.around(level, unit)) == wanted
        places = nested.place[nested.around(level, unit)]
        assert np.all(np.diff(places) > 0)


def test_each_level_divides_every_unit():
    problem = make_problem(unrolled(4, 5), make_topology(2))
    nested = NestedScopes(problem)
    for scopes in nested.scopes:
        assert sorted(np.concatenate(scopes).tolist()) == [*range(problem.num_units)]


def test_what_has_no_scope_is_with_its_neighbour():
    graph = make_graph(
        dict.fromkeys(["a/x", "a/y", "a/z", "b/x", "b/y", "b/z", "AddN"], 4),
        ["a/x -> a/y", "a/y -> a/z", "b/x -> b/y", "b/y -> b/z", "b/z -> AddN"],
    )
    problem = make_problem(graph, make_topology(2))
    nested = NestedScopes(problem)
    assert [len(scopes) for scopes in nested.scopes] == [2]
    alone = int(problem.grouping.unit_of[graph.index["AddN"]])
    assert "b/x" in named(graph, problem, nested.around(0, alone))


def test_names_without_scopes_have_no_levels():
    graph = make_graph(dict.fromkeys("abcd", 4), ["a -> b", "c -> d"])
    assert NestedScopes(make_problem(graph, make_topology(2))).labels == []
