"""Every dtype of TensorFlow is read, and gives placed what it gives plain, where TensorFlow itself can run it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from grappler_bridge.errors import GrapplerError
from grappler_bridge.optimize import optimize_graph
from tfplace.extraction import flatten

_NO_VALUES = {"resource", "variant"}
_NOT_CAST = {"string", "float4_e2m1fn", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "int2", "uint2"}
"""For which TensorFlow's CPU has no kernel of `tf.cast`."""

_ALL = {
    dtype.name: dtype
    for module in (tf.dtypes, tf.dtypes.experimental)
    for dtype in vars(module).values()
    if isinstance(dtype, tf.DType) and dtype.name not in _NO_VALUES
}


def placed_and_plain(function, x):
    """What the function returns when its ops are spread over two devices, and by itself."""
    graph = tfplace.extract(function, x)
    placement = tfplace.place(graph, topology="2xP100", placer="round_robin", progress=False)
    placed = tfplace.apply(graph, placement, devices={"GPU:0": "CPU:0", "GPU:1": "CPU:1"})
    return placed(x).numpy(), function(x).numpy()


@pytest.mark.parametrize("name", _ALL)
def test_tensors_and_constants_of_every_type(name):
    dtype = _ALL[name]
    values = np.array([b"a", b"b", b"c", b"d"]) if name == "string" else np.zeros(4, dtype.as_numpy_dtype)
    inner = tf.function(tf.identity)

    @tf.function
    def step(x):
        return tf.reshape(tf.identity_n([inner(x), tf.constant(values, dtype)])[0], tf.shape(x)[:1])

    placed, plain = placed_and_plain(step, tf.constant(values, dtype))
    assert placed.dtype == plain.dtype
    assert placed.tobytes() == plain.tobytes()


@pytest.mark.parametrize("name", sorted(_ALL.keys() - _NOT_CAST))
def test_casts_to_every_type_and_back(name):
    dtype = _ALL[name]
    by = tf.int8 if name in ("int4", "uint4") else tf.float64  # to and from which there are kernels

    @tf.function
    def step(x):
        low = tf.cast(tf.cast(x, by), dtype)
        back = tf.cast(tf.reshape(low, [2, 2]), by)
        return tf.math.real(back) if back.dtype.is_complex else tf.cast(back, tf.float32) * 3

    placed, plain = placed_and_plain(step, tf.constant([1.3, 2.6, 0.1, 3.0]))
    np.testing.assert_array_equal(placed, plain)
    assert plain[-1, -1] in (9.0, 3.0)  # 3 of a boolean


def test_a_graph_that_grappler_cannot_shorten_is_read_as_it_is(monkeypatch):
    """Whichever of the passes fails, calls are inlined, loops are lowered, and the numbers are the same."""

    @tf.function
    def body(x):
        return tf.exp(x) * 0.5

    @tf.function
    def step(x):
        for _ in tf.range(3):
            x = body(x)
        return x

    x = tf.constant([0.1, 0.2])
    short = tfplace.extract(step, x)
    for failing in ("constfold", "dependency"):

        def optimize(graph_def, fetches, passes, kept=(), failing=failing):
            if failing in passes:
                raise GrapplerError("Grappler failed to optimize the graph: a type that it does not know")
            return optimize_graph(graph_def, fetches, passes, kept)

        monkeypatch.setattr(flatten, "optimize_graph", optimize)
        with pytest.warns(UserWarning, match="a type that it does not know"):
            graph = tfplace.extract(step, x)
        assert len(graph.op_names) >= len(short.op_names)
        assert {"Exp", "Merge", "NextIteration"} <= {*graph.op_types}
        with pytest.warns(UserWarning):
            placed, plain = placed_and_plain(step, x)
        np.testing.assert_array_equal(placed, plain)
