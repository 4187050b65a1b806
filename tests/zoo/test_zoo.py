import numpy as np
import pytest
from tfplace_zoo import zoo

SMALL = {
    "amoebanet": {"batch": 2, "cells": 3, "filters": 16, "size": 32, "classes": 10},
    "bert_base": {"batch": 2, "length": 6, "masked": 2, "layers": 1, "width": 8, "heads": 2, "vocabulary": 50},
    "bert_large": {"batch": 2, "length": 6, "masked": 2, "layers": 2, "width": 8, "heads": 4, "vocabulary": 50},
    "dlrm": {"batch": 2, "most_rows": 20, "width": 4, "bottom": (6,), "top": (8,)},
    "efficientnet": {"batch": 2, "size": 32, "classes": 10},
    "gpt": {"batch": 2, "length": 4, "layers": 2, "width": 8, "heads": 2, "vocabulary": 50},
    "moe": {"batch": 2, "length": 6, "layers": 2, "experts": 3, "width": 8, "heads": 2, "vocabulary": 50},
    "nasnet": {"batch": 2, "cells": 3, "filters": 8, "size": 32, "classes": 10},
    "resnet152": {"batch": 2, "size": 32, "classes": 10},
    "vit": {"batch": 2, "layers": 1, "width": 8, "heads": 2, "patch": 8, "size": 16, "classes": 10},
    "inception_v3": {"batch": 2, "size": 75, "classes": 10},
    "rnnlm_2": {"batch": 2, "steps": 3, "units": 8, "vocabulary": 50},
    "resnet50": {"batch": 2, "size": 32, "classes": 10},
    "rnnlm_4": {"batch": 2, "steps": 3, "units": 8, "vocabulary": 50},
    "transformer": {"batch": 2, "length": 4, "layers": 1, "width": 8, "heads": 2, "vocabulary": 50},
    "two_tower": {"batch": 2, "layers": 1, "width": 8, "features": 4, "output": 3},
    "wide_mlp": {"batch": 2, "layers": 2, "width": 8, "features": 4, "classes": 5},
    "gnmt_2": {"batch": 2, "length": 3, "units": 8, "vocabulary": 50},
    "gnmt_4": {"batch": 2, "length": 3, "units": 8, "vocabulary": 50},
    "gnmt_8": {"batch": 2, "length": 3, "units": 8, "vocabulary": 50},
    "nmt_2": {"batch": 2, "source_length": 3, "target_length": 4, "units": 8, "vocabulary": 50},
    "nmt_4": {"batch": 2, "source_length": 3, "target_length": 4, "units": 8, "vocabulary": 50},
    "transformer_xl_2": {"batch": 2, "length": 4, "memory": 3, "width": 8, "heads": 2, "inner": 16, "vocabulary": 50},
    "transformer_xl_4": {"batch": 2, "length": 4, "memory": 3, "width": 8, "heads": 2, "inner": 16, "vocabulary": 50},
    "transformer_xl_8": {"batch": 2, "length": 4, "memory": 3, "width": 8, "heads": 2, "inner": 16, "vocabulary": 50},
    "wavenet_2x18": {"batch": 2, "samples": 12, "residual": 4, "skip": 6, "classes": 8},
    "wavenet_4x36": {"batch": 2, "samples": 12, "residual": 4, "skip": 6, "classes": 8},
}


def one_step(built):
    import tensorflow as tf

    rng = np.random.default_rng(0)
    data = tf.nest.map_structure(lambda s: rng.integers(0, 2, s.shape).astype(s.dtype.as_numpy_dtype), built.batch)
    return float(built.model.train_on_batch(*data))


def test_small_sizes_cover_the_zoo():
    assert set(SMALL) == set(zoo.names())


@pytest.mark.parametrize("name", zoo.names())
def test_model_builds_as_described(name):
    built = zoo.build(name, **SMALL[name])
    assert built.name == name
    assert built.paper
    assert built.departures
    assert zoo.describe(name)
    assert not built.model.jit_compile
    import tensorflow as tf

    specs = tf.nest.flatten(built.batch)
    assert all(s.shape.is_fully_defined() and s.shape[0] == 2 for s in specs)
    assert [tuple(x.shape[1:]) for x in built.model.inputs] == [
        tuple(s.shape[1:]) for s in tf.nest.flatten(built.batch[0])
    ]


@pytest.mark.parametrize("name", ["rnnlm_2", "transformer", "two_tower", "wide_mlp"])
def test_batch_fits_the_model(name):
    assert np.isfinite(one_step(zoo.build(name, **SMALL[name])))


def test_lstm_as_a_loop_learns_the_same_shapes():
    unrolled, loop = (zoo.build("rnnlm_2", **SMALL["rnnlm_2"], unroll=u).model for u in (True, False))
    assert [w.shape for w in unrolled.weights] == [w.shape for w in loop.weights]


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"inception_v4.*expected one of amoebanet, .*inception_v3, "):
        zoo.build("inception_v4")


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("transformer", {"width": 10, "heads": 4}, "width=10, heads=4"),
        ("gpt", {"width": 10, "heads": 4}, "width=10, heads=4"),
        ("transformer_xl_2", {"width": 10, "heads": 4}, "width=10, heads=4"),
        ("wide_mlp", {"width": 10, "columns": 3}, "width=10, columns=3"),
        ("vit", {"size": 20, "patch": 8}, "size=20, patch=8"),
        ("transformer_xl_2", {"width": 9, "heads": 3}, "width=9, sines and cosines=2"),
        ("bert_base", {"length": 600}, "length=600, positions=512"),
        ("wavenet_2x18", {"stacks": 0}, "stacks=0; expected at least 1"),
        ("two_tower", {"batch": 0}, "batch=0; expected at least 1"),
        ("nmt_2", {"layers": 0}, "layers=0; expected at least 1"),
        ("transformer_xl_2", {"memory": -1}, "memory=-1; expected at least 0"),
        ("nasnet", {"cells": 0}, "cells=0; expected at least 1"),
        ("efficientnet", {"size": 0}, "size=0; expected at least 1"),
    ],
)
def test_sizes_that_make_no_model_are_refused(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        zoo.build(name, **{**SMALL[name], **wrong})


def test_the_transformer_learns_its_positions():
    sizes = SMALL["transformer"]
    built = zoo.build("transformer", **sizes)
    width, length = sizes["width"], sizes["length"]
    block = 4 * (width * width + width) + (width * 4 * width + 4 * width) + (4 * width * width + width) + 4 * width
    words = sizes["vocabulary"] * width
    assert built.model.count_params() == words + length * width + sizes["layers"] * block + 2 * width + 2
