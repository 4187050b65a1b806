"""Ops and kernels of a library that is loaded after a first graph was read."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.op_library import call, register_kernel, register_op
from tfplace.errors import SourceError


def function(op_type):
    return tf.function(lambda x: call(op_type, x * 2) + 1)


def graph_def(op_type):
    """A graph that calls the op, made without it."""
    with tf.Graph().as_default() as graph:
        tf.exp(tf.compat.v1.placeholder(tf.float32, [3], name="x"), name="late")
    made = graph.as_graph_def()
    (node,) = (node for node in made.node if node.name == "late")
    node.op = op_type
    node.attr.clear()
    return made


def test_a_graph_that_was_refused_for_an_unknown_op_is_read_once_the_op_is_known():
    graph = graph_def("LateOp")
    with pytest.raises(SourceError) as refused:
        tfplace.extract(graph)
    assert "LateOp" in refused.value.received
    register_op("LateOp")
    assert "LateOp" in tfplace.extract(graph).op_types


def test_a_function_of_a_late_op_is_read_and_placed():
    tfplace.extract(tf.function(tf.exp), tf.TensorSpec([3]))
    register_op("LateInFunction")
    register_kernel("LateInFunction")
    step = function("LateInFunction")
    x = tf.constant([1.0, 2.0, 3.0])
    graph = tfplace.extract(step, x)
    placement = tfplace.place(graph, topology="2xP100", placer="round_robin", progress=False)
    placed = tfplace.apply(graph, placement, devices={"GPU:0": "CPU:0", "GPU:1": "CPU:1"})
    np.testing.assert_array_equal(placed(x), step(x))


def test_an_op_whose_kernel_comes_late_is_where_that_kernel_is():
    register_op("LateKernel")
    graph = graph_def("LateKernel")

    def able():
        read = tfplace.extract(graph)
        row = read.has_kernel[read.index["late"]]
        return {kind for kind, has in zip(read.kernel_types, row, strict=True) if has}

    assert able() == {"CPU", "GPU"}  # nothing is known of it
    register_kernel("LateKernel")
    assert able() == {"CPU"}
