"""`tfplace.split`, and `tfplace.extract` with slices."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tfplace.errors import InputError, SplitError

BATCH = (np.zeros((6, 4), np.float32), np.zeros(6, np.int32))


def small():
    keras.utils.clear_session()
    layers = keras.layers
    stack = [layers.Input((4,)), layers.Dense(3, name="wide"), layers.BatchNormalization(name="norm")]
    model = keras.Sequential([*stack, layers.Dense(2, name="top")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@tf.function
def step(x, table):
    return tf.reduce_mean(tf.matmul(x, table))


STEP = (tf.TensorSpec((6, 4)), tf.TensorSpec((4, 3)))


def test_extract_with_slices_is_split():
    split, extracted = tfplace.split(small(), [4, 2], BATCH), tfplace.extract(small(), BATCH, slices=[4, 2])
    assert split.slices.sizes == extracted.slices.sizes == (4, 2)
    assert split.content == extracted.content and split.fingerprint == extracted.fingerprint


@pytest.mark.parametrize("slices", [None, 1])
def test_one_slice_is_the_whole_step(slices):
    whole, same = tfplace.extract(small(), BATCH), tfplace.extract(small(), BATCH, slices=slices)
    assert same.content == whole.content and same.slices is None
    assert tfplace.split(small(), 1, BATCH).content == whole.content


def test_what_is_asked_for_is_passed_on():
    model = small()
    exact = tfplace.split(model, 2, BATCH, batch_norm="synchronized", name="mine")
    assert exact.name == "mine" and str(exact.slices) == "2 slices of 3 examples: same numbers up to summation order"
    own = tfplace.split(small(), 2, BATCH)
    assert "norm" in own.slices.verdict
    inference = tfplace.split(model, 2, BATCH[0], training=False)
    assert not any("gradient_tape" in name for name in inference.op_names)
    graph = tfplace.split(step, 3, STEP, batch_axis={1: None})
    assert graph.slices.sizes == (2, 2, 2)
    with pytest.raises(SplitError):
        tfplace.split(step, 3, STEP)
    with pytest.raises(InputError):
        tfplace.split(small(), 2, BATCH, batch_norm="none")


def test_layers_have_the_ops_of_the_unsplit_step_with_all_their_copies():
    whole, split = tfplace.extract(small(), BATCH), tfplace.split(small(), [3, 2, 1], BATCH)
    assert [*split.layers] == [*whole.layers] == ["wide", "norm", "top"]
    for name, ops in whole.layers.items():
        assert {split.base_names[v] for v in split.layers[name]} == {whole.op_names[v] for v in ops}
        assert {*split.slices.slice_of[split.layers[name]].tolist()} == {-1, 0, 1, 2}


def test_what_has_the_sizes_of_one_batch_is_refused(tmp_path):
    graph = tfplace.extract(step, STEP)
    graph.save(tmp_path / "g.npz")
    graph.save(tmp_path / "g.meta")
    meta = graph.metagraph()
    sources = [graph, tmp_path / "g.npz", str(tmp_path / "g.meta"), meta, step.get_concrete_function(*STEP)]
    for source in sources:
        with pytest.raises(SplitError) as refused:
            tfplace.split(source, 2)
        assert "a Keras model or a tf.function" in refused.value.expected
    with pytest.raises(SplitError, match=r"slices='2'"):
        tfplace.extract(step, STEP, slices="2")


def test_place_and_memory_split_what_they_read():
    model = small()
    placement = tfplace.place(model, "2xP100", batch=BATCH, slices=2, placer="single", budget=2, progress=False)
    assert placement.problem.graph.slices.sizes == (3, 3)
    assert "2 slices of 3 examples" in placement.summary()
    need = [tfplace.memory(small(), "2xP100", batch=BATCH, slices=slices).peak_bytes for slices in (None, 6)]
    assert need[0] != need[1]
