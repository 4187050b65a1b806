"""Whole training steps of many kinds of models, split and not: five steps, their logs and all variables."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfplace
from tests.transforms import split_models
from tests.transforms.split_models import BATCH, L, build, variables
from tfplace.core.slices import DRAWS, STATISTICS
from tfplace.transforms.split import split_source

UNEVEN = (7, 3, 1, 1)
EXACT = {
    "mlp": 1e-12,
    "lstm": 1e-12,
    "transformer": 1e-11,
    "masked_sequences": 1e-12,
    "masked_words": 1e-12,
    "in_batch_negatives": 1e-12,
    "mixture_of_experts": 1e-12,
    "several_outputs": 1e-12,
    "regularized": 1e-12,
    "clipped_in_step": 1e-12,
    "gan": 1e-12,
    "accumulated": 1e-12,
    "averaged": 1e-11,
    "texts": 1e-12,
    "module": 1e-4,
    "mixed_precision": 5e-3,
}
"""Model -> largest difference, relative to a variable's largest element: of float64, float32 (Sonnet), half floats."""

PACKED = {(name, slices) for name in EXACT for slices in (3, UNEVEN)}
"""What is tried with small tensors packed; other numbers of slices are without."""

QUICK = {("mlp", UNEVEN), ("masked_sequences", UNEVEN), ("several_outputs", UNEVEN), ("regularized", 3)}
QUICK |= {
    ("masked_words", UNEVEN),
    ("in_batch_negatives", UNEVEN),
    ("mixture_of_experts", 2),
    ("clipped_in_step", UNEVEN),
    ("module", 4),
}


@pytest.fixture(autouse=True)
def _in_float64():
    before, policy = keras.backend.floatx(), keras.config.dtype_policy()
    keras.backend.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.backend.set_floatx(before)
    keras.config.set_dtype_policy(policy)


def trained(name, slices=None, **options):
    """Graph, logs of each step and variables after a few steps on one device."""
    source, batches = build(name)
    graph = split_source(source, batches[0], slices, **options) if slices else tfplace.extract(source, batches[0])
    step = tfplace.apply(graph, tfplace.place(graph, placer="single", budget="1 evaluations", progress=False))
    logs = []
    for batch in batches:
        given = tf.nest.map_structure(tf.constant, batch)
        out = step(given) if isinstance(source, keras.Model | tf_keras.Model) else step(*given)
        logs.append({key: np.asarray(value) for key, value in out.items()})
    step.restore()
    return graph, logs, variables(source)


@pytest.fixture(scope="module")
def unsplit():
    made = {}

    def of(name):
        if name not in made:
            made[name] = trained(name)
        return made[name]

    return of


def apart(a, b):
    """The largest difference of two arrays, relative to the largest element; 1 where integers differ."""
    if a.dtype.kind != "f":
        return 1.0 - np.array_equal(a, b)
    return float(np.abs(a - b).max(initial=0) / max(float(np.abs(a).max(initial=0)), 1e-3))


def differing(a, b, tolerance):
    """Names of what differs in two runs' logs and variables."""
    (_, logs, held), (_, other_logs, other_held) = a, b
    steps = enumerate(zip(logs, other_logs, strict=True))
    out = [(n, key) for n, (x, y) in steps for key in x if apart(x[key], y[key]) > tolerance]
    pairs = zip(held.items(), other_held.values(), strict=True)
    return out + [key for (key, x), y in pairs if apart(x, y) > tolerance]


@pytest.mark.parametrize(
    ("name", "slices"),
    [
        pytest.param(name, slices, marks=() if (name, slices) in QUICK else pytest.mark.slow)
        for name in EXACT
        for slices in (2, 3, 4, UNEVEN)
    ],
)
def test_a_split_step_has_the_numbers_of_the_unsplit_one(unsplit, name, slices):
    split = trained(name, slices, pack=(name, slices) in PACKED)
    assert split[0].slices.differences == ()
    assert split[0].slices.slice_of.max() == len(split[0].slices.sizes) - 1
    assert differing(unsplit(name), split, EXACT[name]) == []


@pytest.mark.parametrize(
    ("name", "tolerance"), [("batch_norm", 1e-10), pytest.param("fused_batch_norm", 1e-3, marks=pytest.mark.slow)]
)
def test_synchronized_statistics_are_those_of_the_batch(unsplit, name, tolerance):
    split = trained(name, UNEVEN, batch_norm="synchronized", pack=True)
    assert split[0].slices.differences == ()
    assert differing(unsplit(name), split, tolerance) == []


@pytest.mark.parametrize(("slices", "same"), [((4, 8), True), ((5, 7), False)], ids=str)
def test_dropout_is_that_of_the_batch_where_a_slice_begins_at_a_count(unsplit, slices, same):
    """Two of the seven numbers of each example are of one count: 4 examples end with one, 5 do not."""
    split = trained("dropout", slices)
    assert {difference.kind for difference in split[0].slices.differences} == (set() if same else {DRAWS})
    assert (differing(unsplit("dropout"), split, 1e-12) == []) == same


def _norm_models(layers):
    inner = [layers.Dense(8), layers.BatchNormalization(momentum=0.8), layers.ReLU(), layers.Dense(5)]
    spatial = [layers.Conv2D(4, 3), layers.BatchNormalization(momentum=0.8), layers.Flatten(), layers.Dense(5)]
    return {(6,): inner, (5, 5, 2): spatial}


def data_parallel(model, batch, sizes, loss_of, rate):
    """Variables after one step of SGD as replicas do it: each with its slice's statistics, gradients averaged."""
    x, y = batch
    trained, kept = model.trainable_variables, model.non_trainable_variables
    before = [v.numpy() for v in kept]
    gradients, averages = [0.0] * len(trained), [0.0] * len(kept)
    start = 0
    for n in sizes:
        part = slice(start, start + n)
        start += n
        with tf.GradientTape() as tape:
            loss = loss_of(y[part], model(x[part], training=True))
        found = [g.numpy() for g in tape.gradient(loss, [getattr(v, "_value", v) for v in trained])]
        gradients = [a + g * n / sum(sizes) for a, g in zip(gradients, found, strict=True)]
        averages = [a + v.numpy() * n / sum(sizes) for a, v in zip(averages, kept, strict=True)]
        for v, value in zip(kept, before, strict=True):
            v.assign(value)
    return [v.numpy() - rate * g for v, g in zip(trained, gradients, strict=True)], averages


@pytest.mark.parametrize("shape", [(6,), (5, 5, 2)], ids=str)
@pytest.mark.parametrize("framework", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_statistics_per_slice_are_those_of_replicas(framework, shape):
    """Gradients and moving averages are the means over slices of what each slice alone gives."""
    dtype, tolerance = ("float64", 1e-10) if framework is keras else ("float32", 1e-3)
    framework.utils.set_random_seed(0)
    model = framework.Sequential([framework.layers.Input(shape), *_norm_models(framework.layers)[shape]])
    loss = framework.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(framework.optimizers.SGD(0.5), loss, **({"jit_compile": False} if framework is keras else {}))
    random = np.random.default_rng(0)
    x, y = random.normal(size=(BATCH, *shape)).astype(dtype), random.integers(0, 5, BATCH)
    weights, averages = data_parallel(model, (x, y), UNEVEN, loss, 0.5)
    graph = split_source(model, (x, y), UNEVEN)
    step = tfplace.apply(graph, tfplace.place(graph, placer="single", budget="1 evaluations", progress=False))
    step((tf.constant(x), tf.constant(y)))
    step.restore()
    assert {difference.kind for difference in graph.slices.differences} == {STATISTICS}
    held = [*model.trainable_variables, *model.non_trainable_variables]
    pairs = zip([*weights, *averages], held, strict=True)
    far = {v.name: float(np.abs(v.numpy() - a).max()) for a, v in pairs}
    assert {name: value for name, value in far.items() if value > tolerance} == {}


def test_a_split_step_has_the_numbers_of_accumulated_gradients():
    """Keras applies the mean of the gradients of as many batches as it accumulates; equal slices give the same."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(BATCH, 6)), random.integers(0, 5, BATCH)

    def model(**options):
        keras.utils.set_random_seed(0)
        net = keras.Sequential([L.Input((6,)), L.Dense(8, "relu"), L.Dense(5)])
        return split_models.compiled(net, keras.optimizers.SGD(0.1, **options))

    accumulating, split = model(gradient_accumulation_steps=3), model()
    for part in np.split(np.arange(BATCH), 3):
        accumulating.train_on_batch(x[part], y[part])
    graph = split_source(split, (x, y), 3)
    step = tfplace.apply(graph, tfplace.place(graph, placer="single", budget="1 evaluations", progress=False))
    step((tf.constant(x), tf.constant(y)))
    step.restore()
    for a, b in zip(accumulating.trainable_variables, split.trainable_variables, strict=True):
        assert apart(a.numpy(), b.numpy()) < 1e-12
