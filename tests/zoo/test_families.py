import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfplace_zoo import families
from tfplace_zoo.families import cifar10, ptb

import tfplace

SMALL = {
    "cifar10": {"batch": 2, "filters": 2, "size": 4},
    "nmt": {"batch": 2, "source_length": 3, "target_length": 4, "units": 8, "vocabulary": 50},
    "ptb": {"batch": 2, "steps": 2, "units": 4, "vocabulary": 20},
}


def test_every_family_has_32_different_members_and_8_of_them_are_for_testing():
    assert families.names() == ("cifar10", "nmt", "ptb")
    for family in families.names():
        drawn = families.specifications(family)
        assert len({json.dumps(s) for s in drawn}) == len(drawn) == 32
        train, test = families.split(family)
        assert len(test) == 8
        assert sorted(train + test) == list(range(32))
        assert families.specifications(family, seed=1) != drawn


def test_members_and_split_are_fixed():
    """What was trained on these must never meet others under the same names."""
    assert families.split("cifar10")[1] == (0, 2, 4, 15, 17, 23, 26, 31)
    assert families.split("nmt")[1] == (5, 10, 11, 13, 17, 20, 22, 30)
    assert families.split("ptb")[1] == (0, 5, 7, 12, 14, 18, 27, 30)
    assert families.specifications("nmt")[0] == {"batch": 32, "source_length": 40, "target_length": 24}


def test_cells_read_only_what_is_before_them():
    for seed in range(5):
        for drawn in families.specifications("cifar10", seed):
            for cell in drawn.values():
                assert all(max(a, b) < 2 + i for i, (a, _, b, _) in enumerate(cell))
                assert {op for _, f, _, g in cell for op in (f, g)} <= set(cifar10.OPERATIONS)
        for drawn in families.specifications("ptb", seed):
            assert all(0 <= previous < max(i, 1) for i, (previous, _) in enumerate(drawn["cell"]))


def test_every_operation_and_activation_is_drawn():
    operations = [op for s in families.specifications("cifar10") for node in s["normal"] for op in node[1::2]]
    assert {op: operations.count(op) > 32 for op in cifar10.OPERATIONS} == dict.fromkeys(cifar10.OPERATIONS, True)
    activations = [a for s in families.specifications("ptb") for _, a in s["cell"]]
    assert {a: activations.count(a) > 50 for a in ptb.ACTIVATIONS} == dict.fromkeys(ptb.ACTIVATIONS, True)


def test_unknown_family_and_member():
    with pytest.raises(ValueError, match=r"'ptbb'; expected one of cifar10, nmt, ptb"):
        families.split("ptbb")
    with pytest.raises(ValueError, match="member 32 of 'ptb'; expected 0 to 31"):
        families.member("ptb", 32)


def small(family, index):
    """A member of small sizes; of cells for images only the first nodes, since they take long to trace."""
    cells = families.specifications(family)[index] if family == "cifar10" else {}
    return families.member(family, index, **SMALL[family], **{kind: nodes[:2] for kind, nodes in cells.items()})


def small_graph(family, index):
    keras.backend.clear_session()
    built = small(family, index)
    return tfplace.extract(built.model, built.batch, name=built.name)


CODE = """
import sys
from tests.zoo.test_families import small_graph
print(small_graph(sys.argv[1], 3).fingerprint)
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", ["nmt", "cifar10"])
def test_another_process_extracts_the_same_graph(family):
    """Of ptb it is the one that the card of the shipped weights has: `tests/learned/policies/test_shipped`."""
    small_graph("ptb", 0)  # names must not depend on what was built before
    here = small_graph(family, 3)
    there = subprocess.run([sys.executable, "-c", CODE, family], capture_output=True, text=True, check=True)
    assert there.stdout.split()[-1] == here.fingerprint
    assert not here.unknown


@pytest.mark.parametrize("family", families.names())
def test_members_are_trained(family):
    built = small(family, 1)
    built.model.run_eagerly = True  # tracing takes longer
    assert built.name == f"{family}_1"
    assert built.paper
    assert built.departures
    rng = np.random.default_rng(0)
    data = tf.nest.map_structure(lambda s: rng.integers(0, 2, s.shape).astype(s.dtype.as_numpy_dtype), built.batch)
    before = [w.numpy() for w in built.model.trainable_variables]
    assert np.isfinite(float(built.model.train_on_batch(*data)))
    same = [np.array_equal(w, v) for w, v in zip(before, built.model.trainable_variables, strict=True)]
    assert not all(same)


def test_a_recurrent_cell_computes_what_its_nodes_say():
    cell = [[0, "tanh"], [0, "relu"], [1, "identity"], [0, "sigmoid"]]
    layer = ptb._layer(cell, 3)
    x = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    given = layer(tf.constant(x)).numpy()

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    shapes = {"tanh": np.tanh, "relu": lambda v: np.maximum(v, 0), "identity": lambda v: v, "sigmoid": sigmoid}
    state = np.zeros((2, 3))
    for t in range(4):
        nodes = []
        for (previous, activation), kernel in zip(cell, layer.kernels, strict=True):
            carried = nodes[previous] if nodes else state
            product = (carried if nodes else np.concatenate([x[:, t], state], axis=1)) @ kernel.numpy()
            gate = sigmoid(product[:, :3])
            nodes.append(gate * shapes[activation](product[:, 3:]) + (1 - gate) * carried)
        state = (nodes[2] + nodes[3]) / 2  # which no node reads
        np.testing.assert_allclose(given[:, t], state, rtol=1e-5, atol=1e-6)


def test_reduction_cells_halve_the_image_and_double_the_filters():
    model = families.member("cifar10", 5, batch=2, filters=4, size=16).model
    shapes = {layer.name: layer.output.shape[1:] for layer in model.layers if layer.name.endswith("_node_4")}
    assert shapes == {
        "normal_0_0_node_4": (16, 16, 4),
        "reduction_1_node_4": (8, 8, 8),
        "normal_1_0_node_4": (8, 8, 8),
        "reduction_2_node_4": (4, 4, 16),
        "normal_2_0_node_4": (4, 4, 16),
    }


def test_a_cell_ends_in_what_no_node_reads():
    cell = [[0, "identity", 1, "identity"], [2, "identity", 2, "identity"]]
    x = keras.Input((8, 8, 4), batch_size=1)
    out = cifar10._cell(cell, x, x, 4, 1, name="all_read")
    assert out.shape == (1, 8, 8, 4)  # the last node alone
    cell = [[1, "identity", 1, "max_pool_3"], [1, "sep_conv_3", 1, "avg_pool_3"]]
    out = cifar10._cell(cell, x, x, 4, 2, name="unread")
    assert out.shape == (1, 4, 4, 12)  # the first input and both nodes
