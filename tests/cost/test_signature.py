"""Ops of one signature do the same work; nothing that decides the work is left out."""

import dataclasses

import pytest

from tfplace.cost.signature import IGNORED_ATTRS, signature, signatures
from tfplace.testing import make_graph

BASE = {"T": "float32", "transpose_a": False, "transpose_b": False}


def product(**changes):
    """The MatMul of two inputs; `changes` to its attributes, or to shapes and dtypes of all three tensors."""
    attrs = {**BASE, **changes.pop("attrs", {})}
    graph = make_graph(
        {"a": 64, "b": 32, "c": 32},
        ["a -> c", "b -> c"],
        types={"a": "Placeholder", "b": "Placeholder", "c": changes.pop("type", "MatMul")},
        attrs={"c": attrs},
    )
    fields = {"tensor_shape": ((4, 4), (4, 2), (4, 2)), "tensor_dtype": ("float32",) * 3, **changes}
    return dataclasses.replace(graph, **fields)


def of_c(graph):
    return signature(graph, graph.index["c"])


def test_it_reads_like_the_op():
    assert of_c(product()) == (
        "MatMul(float32[4,4], float32[4,2]) -> (float32[4,2]) {T=float32, transpose_a=False, transpose_b=False}"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "BatchMatMulV2"},
        {"attrs": {"transpose_a": True}},
        {"attrs": {"strides": (1, 2, 2, 1)}},
        {"attrs": {"padding": "SAME"}},
        {"tensor_shape": ((8, 4), (4, 2), (8, 2))},
        {"tensor_shape": ((4, 4), (4, 2), (4, 3))},
        {"tensor_shape": ((4, 4), (4, 2), None)},
        {"tensor_dtype": ("float32", "float32", "float64")},
        {"tensor_dtype": ("float64", "float32", "float32")},
    ],
)
def test_what_decides_the_work_makes_another_signature(changes):
    assert of_c(product(**changes)) != of_c(product())


@pytest.mark.parametrize("name", sorted(IGNORED_ATTRS))
def test_names_and_seeds_do_not(name):
    assert of_c(product(attrs={name: 7})) == of_c(product())


def test_inputs_in_another_order_are_another_signature():
    shapes = {"tensor_shape": ((4, 4), (4, 4), (4, 4)), "tensor_dtype": ("float32", "bfloat16", "float32")}
    there = product(**shapes)
    back = product(**{**shapes, "tensor_dtype": ("bfloat16", "float32", "float32")})
    assert of_c(there) != of_c(back)


def test_control_edges_and_names_of_ops_do_not_matter():
    plain = make_graph({"a": 4, "b": 4, "c": 4}, ["a -> b", "a -> c"], types=dict.fromkeys("abc", "Neg"))
    tied = make_graph({"x": 4, "y": 4, "z": 4}, ["x -> y", "x -> z", "^y -> z"], types=dict.fromkeys("xyz", "Neg"))
    assert signatures(plain) == signatures(tied)
    assert signatures(plain)[1] == signatures(plain)[2]
