"""Layers from names, their order, and blocks cut where it costs least."""

from __future__ import annotations

import itertools

import numpy as np

from tfplace.group.layers import layers
from tfplace.local_search.devices import compute_devices
from tfplace.placers.expert import Expert, _cut, by_family, contiguous
from tfplace.search.budget import Budget
from tfplace.search.search import Search
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
    return Expert().place(Search(problem, Budget(evaluations=1), 0).context("expert"))


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


def by_scope(ops, edges, types=None, variables=None, devices=4):
    """Devices a family's rule gives, by op name."""
    graph = make_graph(dict.fromkeys(ops, 8), edges, types=types, variables=variables)
    problem = make_problem(graph, make_topology(devices + 1, types=["CPU"] + ["GPU"] * devices))
    ruled = by_family(problem, contiguous(problem))
    return None if ruled is None else by_name(problem, ruled)


def gates(*scopes):
    """The ops of recurrent cells, and their types."""
    ops = [f"net/{scope}/{kind.lower()}" for scope in scopes for kind in ("Sigmoid", "Tanh")]
    return ops, {op: op.rsplit("/", 1)[1].title() for op in ops}


def test_recurrent_layers_have_a_device_each():
    cells, types = gates("lstm_0_1", "lstm_1_1", "lstm_2_1")
    ops = ["net/embedding_1/gather", *cells, "net/logits_1/matmul", "loss", "gradient_tape/net/lstm_1_1/grad"]
    edges = ["net/logits_1/matmul -> loss"]
    device = by_scope(ops, edges, types=types)
    assert [device[f"net/lstm_{i}_1/tanh"] for i in range(3)] == [1, 2, 3]
    assert device["net/embedding_1/gather"] == 1
    assert device["net/logits_1/matmul"] == device["loss"] == 3
    assert device["gradient_tape/net/lstm_1_1/grad"] == 2


def test_neighbouring_recurrent_layers_share_where_devices_are_few():
    cells, types = gates(*(f"lstm_{i}" for i in range(12)))
    device = by_scope(cells, [], types=types)
    assert [device[f"net/lstm_{i}/tanh"] for i in range(12)] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


def test_layer_i_of_encoder_and_decoder_go_together():
    scopes = ("encoder_0_forward_1", "encoder_0_backward_1", "encoder_1_1", "decoder_0_1", "decoder_1_1")
    cells, types = gates(*scopes)
    ops = [*cells, "net/decoder_0_1/attention/softmax", "net/target_embedding/gather"]
    device = by_scope(ops, [], types=types)
    assert [device[f"net/{scope}/tanh"] for scope in scopes] == [1, 1, 2, 1, 2]
    assert device["net/decoder_0_1/attention/softmax"] == 1
    assert device["net/target_embedding/gather"] == 1


def test_encoders_without_gates_are_no_recurrent_layers():
    assert by_scope([f"net/encoder_{i}/matmul" for i in range(3)], []) is None


def test_tables_are_spread_by_bytes_and_perceptrons_go_where_least_is():
    sizes = {
        "net/table_0/w": 900,
        "net/table_1/w": 500,
        "net/table_2/w": 400,
        "net/table_3/w": 100,
        "net/table_4/w": 50,
    }
    device = by_scope([*sizes, "net/top_0/matmul", "net/bottom_0/matmul"], [], variables=sizes, devices=3)
    assert [device[name] for name in sizes] == [1, 2, 3, 3, 2]
    assert device["net/top_0/matmul"] == device["net/bottom_0/matmul"] == 3


def test_experts_are_spread_and_the_rest_is_in_blocks():
    ops = []
    for block in range(2):
        ops += [f"net/block_{block}_attention_1/matmul", *(f"net/block_{block}_expert_{e}_1/matmul" for e in range(4))]
    edges = [f"{a} -> {b}" for a, b in itertools.pairwise(ops)]
    device = by_scope(ops, edges, devices=2)
    for block in range(2):
        assert [device[f"net/block_{block}_expert_{e}_1/matmul"] for e in range(4)] == [1, 1, 2, 2]
    assert [device[f"net/block_{block}_attention_1/matmul"] for block in range(2)] == [1, 2]


def test_the_better_of_rule_and_blocks_is_returned():
    cells, types = gates("lstm_0", "lstm_1")
    graph = make_graph(dict.fromkeys(cells, 8), [f"{a} -> {b}" for a, b in itertools.pairwise(cells)], types=types)
    problem = make_problem(graph, make_topology(2))
    search = Search(problem, Budget(evaluations=10), 0)
    placed = Expert().place(search.context("expert"))
    assert search.evaluations == 2
    assert search.best_key == search.evaluator.key(placed)


def test_a_device_without_room_takes_no_block_and_spoils_no_other():
    seconds, size = np.ones((6, 3)), np.full(6, 100.0)
    block = _cut(seconds, np.zeros(7), size, np.array([0, 400, 400]))
    assert sorted({*block.tolist()}) == [1, 2] and np.bincount(block).max() == 3
