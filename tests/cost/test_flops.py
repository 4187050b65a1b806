"""Operation counts against numbers worked by hand, and that they grow with shapes."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.cost.flops import RULES, Op, rule_of
from tfplace.testing import make_graph


def graph_of(op_type, inputs, outputs, attrs=None):
    """One op of `op_type` whose inputs and outputs have the given shapes, all float32."""
    names = [f"in{i}" for i in range(len(inputs))]
    sizes = {name: 4 * math.prod(shape) for name, shape in zip(names, inputs, strict=True)}
    graph = make_graph(
        {**sizes, "op": tuple(4 * math.prod(s) for s in outputs)},
        [f"{name} -> op" for name in names],
        types={"op": op_type},
        attrs={"op": attrs or {}},
    )
    shapes = (*inputs, *outputs)
    return dataclasses.replace(graph, tensor_shape=shapes, tensor_dtype=("float32",) * len(shapes))


def flops(op_type, inputs, outputs, **attrs):
    graph = graph_of(op_type, inputs, outputs, attrs)
    return rule_of(op_type)[1](Op(graph, graph.num_ops - 1))


IMAGES, KERNEL, RESULT = (8, 16, 16, 3), (5, 5, 3, 32), (8, 12, 12, 32)
CONV = 2 * (8 * 12 * 12 * 32) * (5 * 5 * 3)


@pytest.mark.parametrize(
    ("op_type", "inputs", "output"),
    [
        ("Conv2D", [IMAGES, KERNEL], RESULT),
        ("Conv2DBackpropInput", [(4,), KERNEL, RESULT], IMAGES),
        ("Conv2DBackpropFilter", [IMAGES, (4,), RESULT], KERNEL),
        ("_FusedConv2D", [IMAGES, KERNEL, (32,)], RESULT),
    ],
)
def test_convolution_and_both_gradients_count_alike(op_type, inputs, output):
    assert flops(op_type, inputs, [output]) == CONV


def test_convolution_in_three_dimensions_and_in_groups():
    assert flops("Conv3D", [(2, 8, 8, 8, 4), (3, 3, 3, 4, 6)], [(2, 6, 6, 6, 6)]) == 2 * (2 * 6**4) * (27 * 4)
    # two groups: the kernel has half of the 8 input channels
    assert flops("Conv2D", [(1, 8, 5, 5), (3, 3, 4, 16)], [(1, 16, 3, 3)], data_format="NCHW") == 2 * 16 * 9 * 9 * 4


@pytest.mark.parametrize(
    ("op_type", "inputs", "output"),
    [
        ("DepthwiseConv2dNative", [(2, 9, 9, 6), (3, 3, 6, 2)], (2, 7, 7, 12)),
        ("DepthwiseConv2dNativeBackpropInput", [(4,), (3, 3, 6, 2), (2, 7, 7, 12)], (2, 9, 9, 6)),
        ("DepthwiseConv2dNativeBackpropFilter", [(2, 9, 9, 6), (4,), (2, 7, 7, 12)], (3, 3, 6, 2)),
    ],
)
def test_depthwise_convolution(op_type, inputs, output):
    assert flops(op_type, inputs, [output]) == 2 * (2 * 7 * 7 * 12) * 9


def test_matrix_products():
    assert flops("MatMul", [(32, 2048), (2048, 1000)], [(32, 1000)]) == 2 * 32 * 2048 * 1000
    assert flops("MatMul", [(2048, 32), (2048, 1000)], [(32, 1000)], transpose_a=True) == 2 * 32 * 2048 * 1000
    assert flops("BatchMatMulV2", [(7, 4, 5), (7, 5, 6)], [(7, 4, 6)]) == 2 * 7 * 4 * 5 * 6
    assert flops("BatchMatMulV2", [(7, 5, 4), (7, 5, 6)], [(7, 4, 6)], adj_x=True) == 2 * 7 * 4 * 5 * 6
    assert flops("BatchMatMulV2", [(7, 4, 5), (5, 6)], [(7, 4, 6)]) == 2 * 7 * 4 * 5 * 6  # broadcast


def test_einsum_spans_all_labels():
    shapes = [(2, 10, 8, 64), (2, 12, 8, 64)]
    assert flops("Einsum", shapes, [(2, 8, 10, 12)], equation="aecd,abcd->acbe") == 2 * 2 * 10 * 12 * 8 * 64
    assert flops("Einsum", [(3, 4, 5), (5, 6)], [(3, 4, 6)], equation="...k,kn->...n") == 2 * 3 * 4 * 5 * 6


def test_recurrent_kernels():
    assert flops("CudnnRNN", [(20, 16, 32), (1, 16, 64), (1, 16, 64), (1000,)], [(20, 16, 64)]) == 2 * 320 * 1000
    assert flops("BlockLSTM", [(), (20, 16, 32), (16, 64), (16, 64), (96, 256)], [()]) == 2 * 320 * 96 * 256


def test_recurrent_gradients():
    x, state, weights = (20, 16, 32), (1, 16, 64), (1000,)
    both = 2 * (2 * 320 * 1000)  # of the input and of the weights
    for op_type in ("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"):
        assert flops(op_type, [x, state, state, weights], [x, state, state, weights]) == both
    x, cell, w = (20, 16, 32), (16, 64), (96, 256)
    for op_type in ("BlockLSTMGrad", "BlockLSTMGradV2"):
        assert flops(op_type, [(), x, cell, cell, w], [x, cell, cell, w]) == 2 * (2 * 320 * 96 * 256)
    x, w_ru, w_c = (16, 32), (96, 128), (96, 64)
    forward = flops("GRUBlockCell", [x, cell, w_ru, w_c], [cell, cell, cell, cell])
    assert flops("GRUBlockCellGrad", [x, cell, w_ru, w_c], [x, cell, cell, (16, 128)]) == forward == 2 * 16 * 96 * 192
    assert flops("LSTMBlockCellGrad", [x, cell, cell, w], [cell, (16, 256)]) == 5 * (16 * 64 + 16 * 256)


def test_pooling_counts_its_window():
    assert flops("MaxPool", [(2, 8, 8, 3)], [(2, 4, 4, 3)], ksize=(1, 2, 2, 1)) == 4 * 2 * 4 * 4 * 3
    forward = [(2, 8, 8, 3), (2, 4, 4, 3), (2, 4, 4, 3)]
    assert flops("MaxPoolGrad", forward, [(2, 8, 8, 3)], ksize=(1, 2, 2, 1)) == 4 * 2 * 4 * 4 * 3
    assert flops("AvgPoolGrad", [(4,), (2, 4, 4, 3)], [(2, 8, 8, 3)], ksize=(1, 2, 2, 1)) == 4 * 2 * 4 * 4 * 3


def test_small_ops():
    assert flops("AddN", [(5, 6)] * 3, [(5, 6)]) == 90
    assert flops("Sum", [(5, 6), (1,)], [(5,)]) == 30
    assert flops("ResourceApplyAdam", [(), (), (), (), (), (), (), (), (), (5, 6)], []) == 12 * 30
    assert flops("NoSuchOp", [(5, 6)], [(5, 6), (2,)]) == 32  # unknown: one per output element
    assert flops("Reshape", [(5, 6), (1,)], [(30,)]) == 0
    assert flops("Split", [(), (4, 6)], [(2, 6), (2, 6)]) == 0


@pytest.mark.parametrize("op_type", sorted(RULES))
def test_every_rule_stands_missing_inputs_and_unknown_ranks(op_type):
    assert flops(op_type, [], []) >= 0
    graph = dataclasses.replace(graph_of(op_type, [(2, 3), (3, 4)], [(2, 4)]), tensor_shape=(None,) * 3)
    assert math.isfinite(rule_of(op_type)[1](Op(graph, 2)))


sizes = st.integers(1, 50)


@given(m=sizes, k=sizes, n=sizes, more=st.integers(0, 5), which=st.integers(0, 2))
def test_matmul_grows_with_every_dimension(m, k, n, more, which):
    grown = [m, k, n]
    grown[which] += more
    before = flops("MatMul", [(m, k), (k, n)], [(m, n)])
    after = flops("MatMul", [(grown[0], grown[1]), (grown[1], grown[2])], [(grown[0], grown[2])])
    assert after >= before
    assert (after > before) == (more > 0)


@given(op_type=st.sampled_from(sorted(RULES)), rows=sizes, columns=sizes, more=st.integers(0, 20))
def test_no_rule_counts_less_for_larger_operands(op_type, rows, columns, more):
    def count(n):
        return flops(op_type, [(n, columns), (columns, n), (n, n)], [(n, n)], ksize=(1, 2, 2, 1), equation="ab,bc->ac")

    assert count(rows + more) >= count(rows)
