"""PlacementCallback(slices=K): `fit` trains on slices of each batch over several devices, with the same numbers."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from tests.execution.pipelines import after_the_loss
from tests.keras.fitting import (
    X,
    Y,
    assert_same,
    assert_same_weights,
    callback,
    devices_of,
    fit,
    keras_of,
    make_model,
)
from tfplace.core.placement import Placement
from tfplace.errors import InputError, SplitError
from tfplace.execution.control_edges import ControlEdges


def sliced(slices, **arguments):
    return callback(**{"slices": slices, "placer": "data_parallel", "batch_norm": "synchronized", **arguments})


@pytest.mark.parametrize(
    ("package", "slices"),
    [
        ("keras", [3, 1]),
        ("tf_keras", 2),
        pytest.param("keras", 2, marks=pytest.mark.slow),
        pytest.param("tf_keras", [3, 1], marks=pytest.mark.slow),
    ],
)
def test_fit_is_the_same_also_where_the_last_batch_is_smaller(package, slices):
    plain, split, call = make_model(package), make_model(package), sliced(slices)
    given = {"validation_data": (X, Y), "sample_weight": np.linspace(0.5, 2, len(X), dtype=np.float32)}
    assert_same(fit(plain, **given), fit(split, call, **given))
    assert_same_weights(plain, split)
    assert call.graph.slices.verdict == "same numbers up to summation order"
    assert len(call.actual.counts) >= 2
    assert call.actual.moved == ()
    assert devices_of(split) == {"CPU:0"}  # everything is back


def test_as_many_slices_as_are_best_are_found_in_fit():
    plain, split = make_model("keras"), make_model("keras")
    call = sliced("auto", placer="auto", budget="60 evaluations")
    assert_same(fit(plain), fit(split, call))
    assert_same_weights(plain, split)
    assert call.placement.check_graph(call.graph) is None


def test_a_step_that_a_search_leaves_whole_is_read_once_for_all_batches(capsys):
    call = callback(slices="auto", placer="single", budget="10 evaluations", verbose=1)
    fit(make_model("keras"), call)  # the last batch has 2 examples
    assert call.graph.slices is None
    assert "(2, 6)" not in capsys.readouterr().out


def test_a_placement_made_before_has_a_number_of_slices(tmp_path):
    with pytest.raises(InputError):
        callback(slices="auto", placement=tmp_path / "placement.json")


def test_a_batch_with_fewer_examples_than_slices_has_as_many_as_examples():
    plain, split, call = make_model("keras"), make_model("keras"), sliced(4)
    assert_same(fit(plain), fit(split, call))  # 22 examples in batches of 4: the last one has 2
    assert_same_weights(plain, split)


def test_a_first_batch_with_fewer_examples_than_slices_is_not_split():
    plain, split, call = make_model("keras"), make_model("keras"), sliced(8, placer="round_robin")
    assert_same(fit(plain), fit(split, call))
    assert call.graph.slices is None


def test_steps_per_execution_and_class_weights_are_those_of_a_plain_fit():
    models = [make_model("keras", steps_per_execution=3) for _ in range(2)]
    weights = {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}}
    assert_same(fit(models[0], **weights), fit(models[1], sliced(2), **weights))
    assert_same_weights(*models)


def test_moving_averages_take_the_mean_of_the_slices_statistics():
    plain, split, call = make_model("keras"), make_model("keras"), sliced(2, batch_norm="per_slice")
    hidden = np.tanh(X[:4] @ plain.layers[0].kernel.numpy() + plain.layers[0].bias.numpy())
    one_step = {"x": X[:4], "y": Y[:4], "epochs": 1}
    fit(plain, **one_step)
    fit(split, call, **one_step)
    assert [difference.kind for difference in call.graph.slices.differences] == ["statistics"]
    norm = split.layers[1]
    np.testing.assert_allclose(norm.moving_mean, plain.layers[1].moving_mean, rtol=1e-4, atol=1e-6)
    of_slices = (hidden[:2].var(axis=0) + hidden[2:].var(axis=0)) / 2
    np.testing.assert_allclose(norm.moving_variance, 0.99 + 0.01 * of_slices, rtol=1e-5)
    assert not np.allclose(of_slices, hidden.var(axis=0), rtol=0.1)


def test_a_second_fit_keeps_the_placement_and_a_saved_one_is_taken(tmp_path):
    model, call = make_model("keras"), sliced(2)
    fit(model, call)
    first = call.placement
    fit(model, call)
    assert call.placement is first
    first.save(tmp_path / "placement.json")
    again = sliced(2, placement=Placement.load(tmp_path / "placement.json"))
    fit(model, again, batch_size=4, epochs=1, x=X[:20], y=Y[:20])
    assert again.placement.devices == first.devices


def test_phases_of_a_placement_are_kept_in_every_batch(monkeypatch):
    models = []
    for _ in range(2):
        keras_of("keras").backend.clear_session()  # counts names, the optimizer's among them, from the beginning
        models.append(make_model("keras"))
    first = sliced(2)
    short = {"x": X[:6], "y": Y[:6], "epochs": 1}  # a batch of four, and one of two
    found = fit(models[0], first, **short)
    phases = np.where(first.graph.slices.slice_of >= 0, after_the_loss(first.graph), -1)
    given = replace(first.placement, phases=phases, order="gpipe")
    waited = []
    own = ControlEdges.set
    monkeypatch.setattr(ControlEdges, "set", lambda edges, waits: waited.append(len(waits.joints)) or own(edges, waits))
    assert_same(found, fit(models[1], sliced(2, placement=given), **short))
    assert_same_weights(*models)
    assert waited and set(waited) == {2}  # both slices' devices have one border, also in the smaller last batch


def test_gradient_accumulation_of_the_model_goes_on_inside_the_split_step():
    keras = keras_of("keras")
    models = [make_model("keras") for _ in range(2)]
    for model in models:
        optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert_same(fit(models[0]), fit(models[1], sliced(2)))
    assert_same_weights(*models)


def test_batches_of_many_shapes_are_read_one_by_one_with_a_warning(monkeypatch, capsys):
    monkeypatch.setattr("tfplace.keras._MANY_SHAPES", 1)
    lengths = tf.data.Dataset.from_generator(
        lambda: ((X[:n], Y[:n]) for n in (4, 3, 2)),
        output_signature=(tf.TensorSpec((None, 6), tf.float32), tf.TensorSpec((None,), tf.int64)),
    ).apply(tf.data.experimental.assert_cardinality(3))
    model = make_model("keras")
    with pytest.warns(UserWarning, match="3 shapes"):
        model.fit(lengths, shuffle=False, verbose=0, callbacks=[sliced(2, verbose=1)])
    assert capsys.readouterr().out.count("(3, 6)") == 1


@pytest.mark.parametrize("slices", [0, True, "2", [], [2, 0], 1.5])
def test_what_is_no_number_of_slices_is_refused_when_the_callback_is_made(slices):
    with pytest.raises(InputError, match="slices"):
        sliced(slices)


def test_slices_of_another_batch_are_refused():
    with pytest.raises(SplitError, match="7"):
        fit(make_model("keras"), sliced([4, 3]))


def test_data_parallel_asks_for_slices():
    with pytest.raises(InputError, match="slices"):
        fit(make_model("keras"), callback(placer="data_parallel"))
