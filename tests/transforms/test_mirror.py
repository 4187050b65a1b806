"""The step that MirroredStrategy runs, made of a split one."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.transforms.split_models import build
from tests.transforms.split_steps import WEIGHTS, in_slices, step
from tfplace.core.slices import Slices
from tfplace.errors import InputError
from tfplace.testing.graphs import make_graph
from tfplace.transforms.mirror import mirrored
from tfplace.transforms.recompute import recompute
from tfplace.transforms.split import split_source


def before(graph, op):
    """Names of all ops that an op waits for."""
    sources = {}
    for src, dst in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        sources.setdefault(dst, []).append(src)
    seen, pending = set(), [graph.index[op]]
    while pending:
        for u in sources.get(pending.pop(), ()):
            if u not in seen:
                seen.add(u)
                pending.append(u)
    return {graph.op_names[u] for u in seen}


def test_every_replica_has_the_weights_the_slots_and_the_update():
    graph = mirrored(step())
    held = {variable.name: graph.op_names[variable.op] for variable in graph.variables}
    of_replicas = {f"replica{r}/{name}{i}" for r in range(4) for name in "wm" for i in range(3)}
    assert held == {name: name for name in [*of_replicas, "total"]}
    for r in range(4):
        own = [f"replica{r}/{op}" for op in ("w0", "w0/read", "m0", "m0/read", "moved0", "update0")]
        assert {int(graph.slices.slice_of[graph.index[op]]) for op in own} == {r}
    assert len(set(graph.resource[[graph.index[f"replica{r}/update0"] for r in range(4)]].tolist())) == 4


def test_slices_read_their_replicas_weights():
    graph = mirrored(step())
    assert {op for op in before(graph, "slice2/loss") if "/w" in op} == {
        f"replica2/w{i}{part}" for i in range(3) for part in ("", "/read")
    }


def test_an_update_needs_the_gradients_of_all_slices():
    graph = mirrored(step())
    for r in range(4):
        needed = before(graph, f"replica{r}/update1")
        assert {f"slice{k}/gradient1" for k in range(4)} <= needed
        assert f"replica{r}/m1/read" in needed
        assert f"replica{(r + 1) % 4}/m1/read" not in needed


def test_all_gradients_of_a_replica_are_in_its_buffer_and_nothing_else_is_sent():
    graph = mirrored(step())
    sent, of = {}, graph.slices.slice_of
    for src, dst, tensor in {
        *zip(*(a.tolist() for a in (graph.edge_src, graph.edge_dst, graph.edge_tensor)), strict=True)
    }:
        if tensor >= 0 and -1 not in (of[src], of[dst]) and of[src] != of[dst]:
            assert {f"slice{of[src]}/gradient{i}" for i in range(3)} <= before(graph, graph.op_names[src])
            pair = int(of[src]), int(of[dst])
            sent[pair] = sent.get(pair, 0) + int(graph.tensor_bytes[tensor])
    whole = -(-sum(WEIGHTS) // 256) * 256  # four chunks of whole lines
    assert sent == {(r, (r + 1) % 4): 2 * 3 * whole // 4 for r in range(4)}


def test_sums_may_be_made_term_by_term():
    at_once, one_by_one = mirrored(step()), mirrored(step(one_by_one=True))
    assert one_by_one.op_names == at_once.op_names
    assert one_by_one.num_edges == at_once.num_edges


def test_what_is_computed_again_is_so_in_its_own_replica():
    ops, edges, original = {}, [], {}
    for k in range(2):
        names = ("a", "b", "c", "loss", "gradients/loss", "gradients/c", "gradients/b")
        ops |= {f"slice{k}/{name}": 8 for name in names}
        original |= {f"slice{k}/{name}": name for name in names}
        pairs = [*itertools.pairwise(names), ("b", "gradients/c"), ("a", "gradients/b")]
        edges += [f"slice{k}/{u} -> slice{k}/{v}" for u, v in pairs]
    graph = make_graph(ops, edges, types=dict.fromkeys(ops, "Tanh"))
    slices = Slices((1, 1), np.repeat(np.arange(2, dtype=np.int32), 7), tuple(original.values()))
    again = recompute(dataclasses.replace(graph, slices=slices), [[graph.index[f"slice{k}/b"] for k in range(2)]])
    replicas = mirrored(again)
    copies = {replicas.op_names[v]: replicas.op_names[u] for v, u in enumerate(replicas.recomputes.tolist()) if u >= 0}
    assert copies == {f"slice{k}/b/recomputed": f"slice{k}/b" for k in range(2)}


def test_what_is_no_gradient_stands_once():
    graph = mirrored(step())
    names = [name.rpartition("/replica")[2] for name in graph.op_names]
    for op in ("x", "loss", "total", "total/add", "done"):
        assert names.count(op) == 1
    assert {f"slice{k}/loss" for k in range(4)} <= before(graph, "total/add")


def test_what_waits_for_all_updates_is_told_once_by_each_replica():
    graph = mirrored(step())
    assert {f"replica{r}/update{i}" for r in range(4) for i in range(3)} <= before(graph, "done")
    assert sum(graph.edge_dst[graph.edge_tensor < 0] == graph.index["done"]) == 4


def test_slices_of_one_replica_are_summed_up_there_first():
    graph = mirrored(step(), [0, 1, 0, 1])
    assert graph.slices.sizes == (8, 8)
    terms = [op for op in before(graph, "replica0/update0") if graph.op_types[graph.index[op]] == "AddN"]
    assert {frozenset(o for o in before(graph, op) if "gradient0" in o) for op in terms if "gradient0" in op} == {
        frozenset({f"slice{k}/gradient0" for k in ks}) for ks in ((0, 2), (1, 3))
    }


def test_a_replica_of_all_slices_exchanges_nothing():
    graph = mirrored(step(), [0, 0, 0, 0])
    assert set(graph.slices.slice_of.tolist()) == {-1, 0}
    assert not any("all_reduce" in op for op in graph.op_names)


def test_rows_of_sparse_gradients_go_to_every_replica():
    ops, edges, of = {"t": 8, "axis": 4}, [], {}
    for k in range(2):
        ops |= {f"slice{k}/taken": 100, f"slice{k}/rows": 100}
        edges += [f"t -> slice{k}/taken", f"slice{k}/taken -> slice{k}/rows"]
        of |= {f"slice{k}/rows": k, f"slice{k}/taken": k}
    ops |= {"gathered": 200, "update": ()}
    edges += [
        "slice0/rows -> gathered",
        "slice1/rows -> gathered",
        "axis -> gathered",
        "gathered -> update",
        "t -> update",
    ]
    bound = dict.fromkeys(("t", "slice0/taken", "slice1/taken", "update"), 0)
    graph = make_graph(
        ops, edges, types={"gathered": "ConcatV2"}, variables={"t": 9000}, resource=bound, replicable=["axis"]
    )
    both = mirrored(in_slices(graph, of, (4, 4)))
    for r in range(2):
        assert {"slice0/rows", "slice1/rows"} <= before(both, f"replica{r}/update")
    bonds = both.resource[[both.index[op] for op in ("replica0/t", "slice0/taken", "replica1/t", "slice1/taken")]]
    assert bonds[0] == bonds[1] != bonds[2] == bonds[3]


@pytest.mark.parametrize("sizes", [3, (7, 3, 1, 1)])
def test_two_optimizers_exchange_twice(sizes):
    source, batches = build("gan")
    split = split_source(source, batches[0], sizes)
    graph, replicas = mirrored(split), len(split.slices.sizes)
    trained, copies = (sum(variable.trainable for variable in g.variables) for g in (split, graph))
    assert copies == replicas * trained
    packed = [op for op in graph.op_names if op.endswith("/packed")]
    assert len(packed) == 2 * replicas
    assert packed[0] in before(graph, packed[-1])


@pytest.mark.parametrize("replica_of", [[0, 1], [0, 0, 2, 2], [1, 1, 1, 1]])
def test_replicas_have_numbers_from_0_on(replica_of):
    with pytest.raises(InputError):
        mirrored(step(), replica_of)


def test_a_whole_step_has_no_replicas():
    for graph in (dataclasses.replace(step(), slices=None), step(slices=1)):
        with pytest.raises(InputError):
            mirrored(graph)
