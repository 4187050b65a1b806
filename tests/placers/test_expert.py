"""Layers from names, their order, and blocks cut where it costs least."""

from __future__ import annotations

import numpy as np

from tfplace.group.layers import layers
from tfplace.placers.base import compute_devices
from tfplace.placers.expert import Expert, _cut
from tfplace.search.budget import Budget
from tfplace.search.study import Search
from tfplace.testing import make_graph, make_problem, make_topology


def training_graph(num_layers=4):
    """A chain of dense layers with a backward pass, a gradient sum and an update per weight."""
    ops, edges, variables, resource = {}, [], {}, {}
    for i in range(num_layers):
        for part in ("w", "read", "mul"):
            ops[f"net/dense_{i}/{part}"] = 1000
        variables[f"net/dense_{i}/w"] = 4000
        edges += [f"net/dense_{i}/w -> net/dense_{i}/read", f"net/dense_{i}/read -> net/dense_{i}/mul"]
        if i:
            edges.append(f"net/dense_{i - 1}/mul -> net/dense_{i}/mul")
    ops["loss"] = 4
    edges.append(f"net/dense_{num_layers - 1}/mul -> loss")
    above = "loss"
    for i in reversed(range(num_layers)):
        gradient = f"gradient_tape/net/dense_{i}/grad"
        ops |= {gradient: 1000, f"AddN_{i}": 1000, f"sgd/update_{i}": ()}
        edges += [f"{above} -> {gradient}", f"net/dense_{i}/mul -> {gradient}", f"{gradient} -> AddN_{i}"]
        edges += [f"AddN_{i} -> sgd/update_{i}", f"net/dense_{i}/w -> sgd/update_{i}"]
        resource |= {f"net/dense_{i}/w": i, f"net/dense_{i}/read": i, f"sgd/update_{i}": i}
        above = gradient
    return make_graph(ops, edges, variables=variables, resource=resource)


def place(problem):
    return Expert().place(Search(problem, Budget(evaluations=1), 0).study("expert"))


def by_name(problem, devices):
    placed = problem.expand(devices)
    return {name: int(placed[v]) for v, name in enumerate(problem.graph.op_names)}


def test_backward_ops_variables_and_updates_join_their_layer():
    problem = make_problem(training_graph(), make_topology(4))
    label = layers(problem, 4, compute_devices(problem))[problem.grouping.unit_of]
    index = problem.graph.index
    for i in range(4):
        for name in (f"net/dense_{i}/mul", f"net/dense_{i}/w", f"gradient_tape/net/dense_{i}/grad", f"AddN_{i}"):
            assert label[index[name]] == i, name
        assert label[index[f"sgd/update_{i}"]] == i


def test_blocks_are_contiguous_and_balanced():
    problem = make_problem(training_graph(), make_topology(2))
    device = by_name(problem, place(problem))
    assert [device[f"net/dense_{i}/mul"] for i in range(4)] == [0, 0, 1, 1]
    assert [device[f"gradient_tape/net/dense_{i}/grad"] for i in range(4)] == [0, 0, 1, 1]


def test_memory_moves_the_cut():
    problem = make_problem(training_graph(), make_topology(2, memory=[7_000, 100_000]))
    device = by_name(problem, place(problem))
    assert [device[f"net/dense_{i}/w"] for i in range(4)] == [0, 1, 1, 1]


def test_a_host_beside_accelerators_is_left_alone():
    problem = make_problem(training_graph(), make_topology(3, types=["CPU", "GPU", "GPU"]))
    assert set(place(problem).tolist()) == {1, 2}


def test_names_that_tell_nothing_give_chunks_in_order():
    graph = make_graph({f"x{i}": 8 for i in range(6)}, [f"x{i} -> x{i + 1}" for i in range(5)])
    problem = make_problem(graph, make_topology(3))
    assert place(problem).tolist() == [0, 0, 1, 1, 2, 2]


def test_cuts_fall_where_little_crosses():
    seconds = np.ones((6, 2))
    crossing = np.array([0.0, 5.0, 5.0, 5.0, 0.1, 5.0, 0.0])
    none = np.zeros(6)
    room = np.array([1, 1], np.int64)
    assert _cut(seconds, np.zeros(7), none, room).tolist() == [0, 0, 0, 1, 1, 1]
    assert _cut(seconds, crossing, none, room).tolist() == [0, 0, 0, 0, 1, 1]
