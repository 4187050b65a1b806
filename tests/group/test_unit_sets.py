"""Sets of units in graphs whose names tell everything, something and nothing, and whose edges do."""

import numpy as np
from hypothesis import given

from tfplace.group.unit_sets import UnitSets
from tfplace.testing import make_graph, make_problem, make_topology
from tfplace.testing.strategies import problems


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


def around(sets, level, unit):
    """The units of the set that a unit is in."""
    return sets.sets[level][sets.labels[level][unit]]


def test_layers_then_steps_with_their_gradients_then_consumers():
    graph = unrolled()
    problem = make_problem(graph, make_topology(2))
    sets = UnitSets(problem)
    assert [len(level) for level in sets.sets] == [3, 12, 23], "of 36, the last cell is one and others two"
    unit = int(problem.grouping.unit_of[graph.index["net/layer_1/step_2/Tanh"]])
    for level, prefix in enumerate(["net/layer_1/", "net/layer_1/step_2/"]):
        wanted = {name for name in graph.op_names if prefix in name}
        assert named(graph, problem, around(sets, level, unit)) == wanted
        places = sets.place[around(sets, level, unit)]
        assert np.all(np.diff(places) > 0)
    cell = {"net/layer_1/step_2/MatMul", "net/layer_1/step_2/Tanh"}
    assert named(graph, problem, around(sets, 2, unit)) == cell


def test_each_level_divides_every_unit():
    divided(make_problem(unrolled(4, 5), make_topology(2)))


@given(problems())
def test_each_level_divides_every_unit_of_any_graph(problem):
    divided(problem)


def divided(problem):
    for level in UnitSets(problem).sets:
        assert len(level) > 1
        assert sorted(np.concatenate(level).tolist()) == [*range(problem.num_units)]


def test_gradients_of_a_weight_are_with_their_sum():
    """Not those that others read too, though as much flows to the sum from them."""
    steps = range(6)
    edges = [f"net/step_{i}/x -> gradient_tape/net/step_{i}/MatMul" for i in steps]
    edges += [f"gradient_tape/net/step_{i}/MatMul -> AddN" for i in steps]
    edges += [f"net/step_{i}/x -> net/step_{i + 1}/x" for i in steps[:-1]]
    edges += [f"net/step_{i}/x -> loss" for i in steps]
    edges += ["AddN -> train", "AddN -> norm", "gradient_tape/net/step_3/MatMul -> norm"]
    names = dict.fromkeys(name for edge in edges for name in edge.split(" -> "))
    graph = make_graph(dict.fromkeys(names, 4), edges)
    problem = make_problem(graph, make_topology(2))
    sets = UnitSets(problem)
    together = named(graph, problem, around(sets, -1, int(problem.grouping.unit_of[graph.index["AddN"]])))
    assert together == {"AddN", *(f"gradient_tape/net/step_{i}/MatMul" for i in steps if i != 3)}


def test_what_has_no_scope_is_with_its_neighbour():
    edges = ["a/x -> a/y", "a/y -> a/z", "a/x -> a/z", "b/x -> b/y", "b/y -> b/z", "b/x -> b/z", "b/z -> AddN"]
    graph = make_graph(dict.fromkeys(["a/x", "a/y", "a/z", "b/x", "b/y", "b/z", "AddN"], 4), edges)
    problem = make_problem(graph, make_topology(2))
    sets = UnitSets(problem)
    assert len(sets.sets[0]) == 2
    alone = int(problem.grouping.unit_of[graph.index["AddN"]])
    assert "b/x" in named(graph, problem, around(sets, 0, alone))


def test_there_are_no_levels_where_neither_names_nor_edges_tell_anything():
    graph = make_graph(dict.fromkeys("abcdef", 4), ["a -> c", "a -> d", "b -> c", "b -> d"])
    assert UnitSets(make_problem(graph, make_topology(2))).labels == []
    chain = make_graph(dict.fromkeys("abcd", 4), ["a -> b", "b -> c", "c -> d"])
    assert UnitSets(make_problem(chain, make_topology(2))).labels == [], "one set of all"
