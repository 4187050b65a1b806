"""Steps in which ops are computed again train to the same bits, whatever the model is made of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.placing import random_placement
from tests.rematerialization.steps import built, cnn, lstm, trained, transformer
from tfplace.core.graph import OpGraph

pytestmark = pytest.mark.tensorflow


def copies(graph: OpGraph) -> list[int]:
    return [] if graph.recomputes is None else np.flatnonzero(graph.recomputes >= 0).tolist()


def assert_same_bits(a: list[Any], b: list[Any]) -> None:
    assert len(a) == len(b)
    assert [x.tobytes() for x in a] == [x.tobytes() for x in b]


@pytest.mark.parametrize(("make", "part"), [(cnn, 0.8), (transformer, 0.8), (lstm, 0.9)])
def test_losses_and_variables_stay_the_same_to_the_bit(make, part):
    """A loop's lists, which are most of what the LSTM keeps, stay."""
    graph, batches = built(make)
    plain = trained(graph, graph, batches)
    sqrt = tfplace.rematerialize(graph, segments="sqrt")
    less = tfplace.rematerialize(graph, max_memory=part, topology="2xP100")
    for again in (sqrt, less):
        assert copies(again)
        assert_same_bits(trained(again, graph, batches), plain)
    assert any("Random" in sqrt.op_types[v] for v in copies(sqrt))


def test_slices_are_computed_again_one_by_one_on_any_devices():
    graph, batches = built(cnn, slices=2)
    again = tfplace.rematerialize(graph, segments="sqrt")
    assert graph.slices is not None
    assert again.slices is not None
    assert {int(again.slices.slice_of[v]) for v in copies(again)} == {0, 1}
    for v in copies(again):
        u = again.recomputes[v]  # type: ignore[index]
        assert again.slices.slice_of[v] == again.slices.slice_of[u]
        assert again.slices.original[v] == again.slices.original[u]
    plain = trained(graph, graph, batches)
    assert_same_bits(trained(again, graph, batches), plain)
    several = trained(again, graph, batches, ["CPU:0", "CPU:1", "CPU:2"])
    for a, b in zip(several, plain, strict=True):  # oneDNN has other kernels at borders of devices
        np.testing.assert_allclose(a.astype(float), b.astype(float), atol=0.01)


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_graph_file_is_computed_again_but_for_readers_of_reference_variables(tmp_path, use_resource):
    """Whoever reads a reference variable reads its memory, which may have been written by the backward pass."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        y = v1.placeholder(tf.float32, (16, 8), name="x")
        for i in range(9):
            w = v1.get_variable(
                f"w{i}", (8, 8), use_resource=use_resource, initializer=v1.random_normal_initializer(seed=i)
            )
            y = tf.tanh(tf.tanh(tf.matmul(tf.tanh(y), w)))
        loss = tf.reduce_mean(tf.square(y - 1.0), name="loss")
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
        v1.train.export_meta_graph(str(tmp_path / "model.meta"))
    graph = tfplace.extract(tmp_path / "model.meta", fetches=("loss", "train"))
    again = tfplace.rematerialize(graph, segments="sqrt")
    kinds = Counter(again.op_types[v] for v in copies(again))
    assert kinds["Tanh"]
    assert (kinds["MatMul"] > 0) == use_resource
    x = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    found = []
    for one in (graph, again):
        placed = tfplace.apply(one, random_placement(one, ["CPU:0", "CPU:1"]))
        found.append([placed({"x": x})["loss:0"] for _ in range(4)] + [*placed.state().values()])
        placed.restore()
    assert_same_bits(found[0], found[1])
