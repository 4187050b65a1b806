"""Groups of ops that XLA makes one kernel of, and what they read and write."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from tfplace_zoo import zoo

import tfplace
from tfplace.core.slices import Slices
from tfplace.cost.fusion import Role, external_bytes, fusion_groups, roles
from tfplace.cost.work import op_work
from tfplace.testing import make_graph
from tfplace.testing.strategies import graphs

TYPES = {"a": "Mul", "b": "Tanh", "s": "Sum", "m": "MatMul", "r": "Relu", "v": "Reshape", "u": "AssignSubVariableOp"}


def groups_of(graph, **options):
    """Op names of each group."""
    labels = fusion_groups(graph, roles(graph, op_work(graph), **options))
    return ["".join(n for n, g in zip(graph.op_names, labels, strict=True) if g == i) for i in range(labels.max() + 1)]


def made(ops, edges, **settings):
    names = {name: TYPES.get(name, "Placeholder") for name in ops}
    return make_graph(dict.fromkeys(ops, 4000), edges, types=names, **settings)


def test_a_chain_is_one_kernel_which_a_reduction_ends():
    assert groups_of(made("xabsr", ["x -> a", "a -> b", "b -> s", "s -> r"])) == ["x", "abs", "r"]


def test_a_product_stands_alone_and_a_view_goes_with_what_reads_it():
    assert groups_of(made("xamvr", ["x -> a", "a -> m", "m -> v", "v -> r"])) == ["x", "a", "m", "vr"]


def test_what_several_kernels_read_is_written_once_for_all():
    assert groups_of(made("xabr", ["x -> a", "a -> b", "a -> r"])) == ["x", "a", "b", "r"]
    assert groups_of(made("xabr", ["x -> a", "a -> b", "a -> r", "b -> r"])) == ["x", "abr"]


@pytest.mark.parametrize(
    "apart",
    [
        {"cpu_only": ["a"]},
        {"host_memory": ["a"]},
        {"colocation": {"a": 0}},
        {"resource": {"a": 0, "b": 1}},
        {"fetches": ["a"]},
    ],
)
def test_ops_that_may_have_to_be_apart_are_no_kernel(apart):
    assert groups_of(made("xab", ["x -> a", "a -> b"])) == ["x", "ab"]
    assert groups_of(made("xab", ["x -> a", "a -> b"], **apart)) == ["x", "a", "b"]


def test_slices_are_no_kernel_together():
    whole = made("xab", ["x -> a", "a -> b"])
    slices = Slices((1, 1), np.array([0, 0, 1], np.int32), whole.op_names)
    assert groups_of(dataclasses.replace(whole, slices=slices)) == ["x", "a", "b"]


def test_loops_run_op_by_op_unless_they_are_compiled_too():
    graph = made("xabr", ["x -> a", "a -> b", "b -> r"], trips={"a": 3.0, "b": 3.0})
    assert groups_of(graph) == ["x", "a", "b", "r"]
    assert groups_of(graph, loops=True) == ["x", "ab", "r"]


def test_a_group_reads_a_value_once_and_writes_what_others_read():
    graph = made("xyabr", ["x -> a", "y -> a", "a -> b", "x -> b", "b -> r"])
    work = op_work(graph)
    labels = fusion_groups(graph, roles(graph, work))
    assert external_bytes(graph, labels, work).tolist() == [0, 0, 3 * 4000]  # x, y and what r makes
    assert work.traffic_bytes[labels == 2].sum() == 8 * 4000


def assert_in_order(graph, labels):
    """Groups can run one after the other, none in two parts."""
    forward = ~graph.edge_back & (labels[graph.edge_src] >= 0) & (labels[graph.edge_dst] >= 0)
    src, dst = labels[graph.edge_src[forward]], labels[graph.edge_dst[forward]]
    count = int(labels.max(initial=-1)) + 1
    matrix = coo_array((np.ones(len(src)), (src, dst)), shape=(count, count)).tocsr()
    assert connected_components(matrix, directed=True, connection="strong")[0] == count


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(20))
def test_groups_can_run_one_after_the_other(graph):
    role = roles(graph, op_work(graph), loops=True)
    labels = fusion_groups(graph, role)
    assert_in_order(graph, labels)
    alone = np.bincount(labels[labels >= 0]) == 1
    assert all(alone[labels[v]] for v in np.flatnonzero(role <= Role.ALONE) if labels[v] >= 0)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("transformer", {"batch": 2, "length": 8, "layers": 1}),
        ("rnnlm_2", {"batch": 2, "steps": 3, "units": 8, "vocabulary": 50}),
    ],
)
def test_groups_of_a_model_can_too_and_are_far_fewer_than_its_ops(name, sizes):
    built = zoo.build(name, **sizes)
    graph = tfplace.extract(built.model, built.batch)
    work = op_work(graph)
    labels = fusion_groups(graph, roles(graph, work, loops=True))
    assert_in_order(graph, labels)
    assert labels.max() < graph.num_ops / 2
    assert external_bytes(graph, labels, work).sum() < 0.8 * work.traffic_bytes.sum()
