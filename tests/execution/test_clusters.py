"""Clusters of a placed step: of one device each, none waiting for itself, and as few as that allows."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.execution import step_models
from tests.execution.pipelines import pipeline
from tests.execution.test_phases import BATCH, dense
from tests.placing import random_placement
from tests.transforms.test_recompute import G, chain, named
from tfplace.core.xla_ops import COMPILABLE, DRAWS, EMPTY_LISTS, LISTS
from tfplace.execution.blocks import changes, merged, topological
from tfplace.execution.clusters import find_clusters
from tfplace.execution.dependencies import Dependencies
from tfplace.execution.phases import phase_waits
from tfplace.execution.waits import NO_WAITS
from tfplace.transforms.recompute import recompute

DEVICES = ["CPU:0", "CPU:1"]


def dependencies(count: int, pairs: list[tuple[int, int]]) -> Dependencies:
    return Dependencies.made(np.arange(count, dtype=np.int32), count, [np.array(pairs, np.int64).reshape(-1, 2)])


def blocks(known: Dependencies, label: np.ndarray) -> list[int]:
    order = topological(known.first, known.before)
    return merged(known.first, known.before, label, changes(known.first, known.before, order, label)).tolist()


def contracted(known: Dependencies, block: list[int]) -> nx.DiGraph:
    """What is before what, blocks as one."""
    at = [("block", block[v]) if block[v] >= 0 else v for v in range(known.count)]
    edges = ((at[u], at[v]) for u, v in known.pairs.tolist())
    return nx.DiGraph((u, v) for u, v in edges if u != v)


def assert_can_run(graph, clusters, waits):
    known = Dependencies.of(graph, waits)
    block = [-1] * known.count
    for number, cluster in enumerate(clusters.clusters):
        for op in cluster.ops:
            block[known.vertex[graph.index[op]]] = number
    assert nx.is_directed_acyclic_graph(contracted(known, block))


@pytest.mark.parametrize("seed", range(50))
def test_blocks_are_of_one_label_and_no_cycle_goes_through_them(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    pairs = [(int(rng.integers(v)), v) for v in range(1, count) for _ in range(rng.integers(3))]
    label = rng.integers(-1, 3, size=count).astype(np.int32)
    block = blocks(known := dependencies(count, pairs), label)
    assert [one < 0 for one in block] == [one < 0 for one in label]
    assert len({(block[v], label[v]) for v in range(count)}) == len(set(block))
    assert nx.is_directed_acyclic_graph(contracted(known, block))


def test_blocks_of_one_label_are_joined_where_nothing_else_lies_between():
    block = blocks(dependencies(5, [(0, 2), (1, 3), (2, 3), (3, 4)]), np.array([0, 1, 1, 1, 0], np.int32))
    assert block[1] == block[2] == block[3]
    assert block[0] != block[4]  # what comes between would wait for itself


def test_vertices_that_wait_for_themselves_are_an_error():
    known = dependencies(3, [(0, 1), (1, 2), (2, 0)])
    with pytest.raises(ValueError, match="wait for themselves"):
        topological(known.first, known.before)


def test_large_graphs_have_their_own_pairs():
    """Numbers of pairs are beyond 32 bits."""
    count = 100_000
    chain = np.stack([np.arange(count - 1), np.arange(1, count)], axis=1).astype(np.int32)
    known = Dependencies.made(np.arange(count, dtype=np.int32), count, [chain])
    assert np.array_equal(known.pairs, chain)
    assert topological(known.first, known.before).tolist() == [*range(count)]


@pytest.mark.parametrize("name", ["inception_like", "lstm_while"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_every_op_is_in_one_cluster_of_its_device_or_left_out_for_a_reason(name, seed):
    source, batches = step_models.build(name)
    graph = tfplace.extract(source, batches[0])
    placement = random_placement(graph, DEVICES, seed)
    found = find_clusters(graph, placement.op_device, DEVICES)
    for cluster in found.clusters:
        assert {placement.devices[op] for op in cluster.ops} == {cluster.device}
    compiled = [op for cluster in found.clusters for op in cluster.ops]
    assert len(set(compiled)) == len(compiled)
    rest = {*graph.op_names} - {*compiled, *found.left_out}
    kinds = {graph.op_types[graph.index[op]] for op in rest}
    assert kinds <= {"Const", "Placeholder", "_Arg", *EMPTY_LISTS}
    assert_can_run(graph, found, phase_waits(graph, placement.op_device, None, DEVICES))


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
def test_phases_of_a_pipeline_are_clusters_of_their_own(order):
    graph = tfplace.extract(dense(), BATCH, slices=4)
    placement = pipeline(graph, ("first", "second"), order)
    names = list(placement.device_names)
    waits = phase_waits(graph, placement.op_device, placement.phases, names)
    found = find_clusters(graph, placement.op_device, names, phases=placement.phases, waits=waits)
    of = {op: int(placement.phases[graph.index[op]]) for cluster in found.clusters for op in cluster.ops}
    assert all(len({of[op] for op in cluster.ops}) == 1 for cluster in found.clusters)
    assert_can_run(graph, found, waits)


def test_a_loop_on_one_device_is_in_a_cluster_and_one_on_two_is_left_out():
    source, batches = step_models.build("lstm_while")
    source.jit_compile = True  # so that lists have a constant size
    graph = tfplace.extract(source, batches[0])
    here = np.zeros(graph.num_ops, np.int32)
    (cluster,) = find_clusters(graph, here, DEVICES).clusters
    assert len(cluster.loops) == 4
    inside = [v for v, trips in enumerate(graph.trips) if trips > 1 and not graph.replicable[v]]
    apart = here.copy()
    apart[inside[::2]] = 1
    left_out = find_clusters(graph, apart, DEVICES).left_out
    assert all(graph.op_names[v] in left_out for v in inside)


def test_draws_have_clusters_of_their_own_on_several_cpus():
    source, batches = step_models.build("transformer")
    graph = tfplace.extract(source, batches[0])
    draws = {graph.op_names[v] for v, kind in enumerate(graph.op_types) if kind in DRAWS}
    halves = (np.arange(graph.num_ops) > graph.num_ops // 2).astype(np.int32)
    for devices, op_device, apart in (
        (["CPU:0", "CPU:1"], halves, True),
        (["GPU:0", "GPU:1"], halves, False),
        (["CPU:0"], np.zeros(graph.num_ops, np.int32), False),
    ):
        clusters = [set(cluster.ops) for cluster in find_clusters(graph, op_device, devices).clusters]
        mixed = [ops for ops in clusters if ops & draws and ops - draws]
        assert draws and bool(mixed) != apart


def test_no_cluster_reads_a_variable_at_once_for_another_one():
    """XLA would copy it out of the cluster that reads it."""
    source, batches = step_models.build("transformer")
    graph = tfplace.extract(source, batches[0])
    halves = (np.arange(graph.num_ops) > graph.num_ops // 2).astype(np.int32)
    found = find_clusters(graph, halves, ["GPU:0", "GPU:1"])
    of = {op: cluster.name for cluster in found.clusters for op in cluster.ops}
    first = {v for v in range(graph.num_ops) if graph.op_types[v] == "ReadVariableOp" and len(graph.inputs[v]) == 1}
    waiting = set(graph.edge_dst[graph.edge_tensor < 0].tolist())
    for u, v in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        if u in first - waiting and graph.op_names[u] in of:
            assert of[graph.op_names[u]] == of.get(graph.op_names[v], of[graph.op_names[u]])
    assert any("several clusters" in why for why in found.left_out.values())


def test_what_can_be_compiled_is_what_tensorflow_has_kernels_for():
    from tensorflow.python.framework import kernels

    tf.function(lambda x: x + 1, jit_compile=True)(1.0)  # which has XLA register its own
    known = {k.op for k in kernels.get_all_registered_kernels().kernel if k.device_type == "XLA_CPU_JIT"}
    assert known >= COMPILABLE | LISTS


def test_what_is_computed_again_is_never_compiled_with_what_it_is_a_copy_of():
    """XLA would find both to be the same and keep the result."""
    steps = chain(10, types={f"a{i}": "Tanh" for i in range(10)} | {f"{G}a{i}": "Mul" for i in range(10)})
    again = recompute(steps, [named(steps, *(f"a{i}" for i in range(5)))])
    assert again.recomputes is not None
    found = find_clusters(again, np.zeros(again.num_ops, np.int32), DEVICES[:1])
    of = {op: cluster.name for cluster in found.clusters for op in cluster.ops}
    copies = {v: u for v, u in enumerate(again.recomputes.tolist()) if u >= 0}
    assert len(copies) == 5
    assert len({of[again.op_names[v]] for v in copies}) == 1
    assert not {of[again.op_names[v]] for v in copies} & {of[again.op_names[u]] for u in copies.values()}
    assert_can_run(again, found, NO_WAITS)
