"""Which gradients and variables of a split step are sent together."""

from collections import defaultdict

import keras
import numpy as np
import pytest

from tfplace.core.slices import PACKED
from tfplace.group.owners import packed_weights, weights_of_ops
from tfplace.transforms.split import split_source

BUCKET_BYTES = 256 * 1024
X, Y = np.zeros((4, 200), np.float32), np.zeros(4, np.int32)


def packed(optimizer, *layers):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((200,)), *layers, keras.layers.Dense(3)])
    model.compile(keras.optimizers.get(optimizer), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return split_source(model, (X, Y), 2, pack=True)


def buckets_of(graph):
    """[B] sets of two and more variables that packs join, each by its handle's name."""
    found = defaultdict(set)
    for variable, first in packed_weights(graph, weights_of_ops(graph)).items():
        found[first].add(graph.op_names[variable])
    return [bucket for bucket in found.values() if len(bucket) > 1]


@pytest.mark.parametrize("optimizer", ["sgd", {"class_name": "sgd", "config": {"momentum": 0.9}}, "adam"], ids=str)
def test_a_variable_is_in_one_bucket_with_its_gradient_whatever_updates_it(optimizer):
    """Else buckets would be joined, one by its variables and another by its gradients, until all have one owner."""
    graph = packed(optimizer, *(keras.layers.Dense(200, "relu") for _ in range(4)))
    size = {graph.op_names[v.op]: v.size_bytes for v in graph.variables}
    buckets = buckets_of(graph)
    assert len(buckets) == 4  # each with a kernel of 160 KiB
    assert all(sum(size[variable] for variable in bucket) <= BUCKET_BYTES for bucket in buckets)


def test_all_that_slices_read_of_small_variables_comes_in_packs():
    """What is made of a variable and constants, too: BatchNorm reshapes what it reads if it is told the axis."""
    picture = keras.layers.Reshape((10, 4, 5))
    graph = packed("sgd", picture, keras.layers.BatchNormalization(axis=3), keras.layers.Flatten())
    once = graph.slices.slice_of < 0
    sent = once[graph.edge_src] & ~once[graph.edge_dst] & ~graph.replicable[graph.edge_src]
    made_of_variables = {v for v in {*graph.edge_src[sent].tolist()} if _comes_of_a_variable(graph, v)}
    assert made_of_variables
    assert all(graph.op_names[v].startswith(PACKED) for v in made_of_variables)


def test_what_slices_do_not_read_is_sent_apart_from_gradients():
    """Moving averages and the mean loss, which are made in the forward pass."""
    graph = packed("sgd", keras.layers.Dense(8), *(keras.layers.BatchNormalization() for _ in range(2)))
    averages, others = sorted(buckets_of(graph), key=len)
    assert len(averages) == 5 and len(others) == 8


def _comes_of_a_variable(graph, op):
    variables, todo, seen = {v.op for v in graph.variables}, [op], set()
    while todo:
        v = todo.pop()
        if v in variables:
            return True
        if v not in seen:
            seen.add(v)
            todo += graph.edge_src[graph.edge_dst == v].tolist()
    return False
