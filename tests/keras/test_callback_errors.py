"""What PlacementCallback refuses, and what a fit that fails leaves behind: nothing."""

import numpy as np
import pytest
import tensorflow as tf

from tests.keras.fitting import (
    DEVICES,
    X,
    Y,
    assert_same,
    assert_same_weights,
    both,
    callback,
    devices_of,
    fit,
    keras_of,
    make_model,
    train_function_of,
)
from tfplace.errors import (
    ApplyError,
    InfeasibleError,
    InputError,
    PlacementError,
    SourceError,
    TopologyError,
    UnknownNameError,
)
from tfplace.execution.placed import Placed
from tfplace.extraction import tf_internals
from tfplace.keras import PlacementCallback


@pytest.mark.parametrize(
    ("wrong", "error", "received"),
    [
        ({"placer": "heftt"}, UnknownNameError, "'heftt'"),
        ({"budget": "soon"}, InputError, "'soon'"),
        ({"topology": "no_such.json"}, TopologyError, "no_such.json"),
        ({"placement": "no_such.json"}, PlacementError, "no_such.json"),
        ({"profile": "no_such.json"}, InputError, "no_such.json"),
        ({"seed": "one"}, InputError, "seed='one'"),
        ({"groups": 3}, InputError, "groups=3"),
        ({"grouper": "metiss"}, UnknownNameError, "'metiss'"),
        ({"objective": "speed"}, UnknownNameError, "'speed'"),
        ({"init": "heft", "placer": "heft"}, InputError, "'heft'"),
        ({"weights": "no_such.npz", "placer": "heft"}, InputError, "'heft'"),
        ({"resume": False}, InputError, "resume=False"),
        ({"constraints": {}}, InputError, "dict"),
        ({"devices": "CPU:1"}, InputError, "devices='CPU:1'"),
        ({"max_memory": {"GPU:9": "1GiB"}, "topology": "2xP100"}, UnknownNameError, "'GPU:9'"),
        ({"bugdet": "30s"}, TypeError, "'bugdet'"),
        ({"evaluator": "measured"}, TypeError, "'evaluator'"),
    ],
)
def test_wrong_options_are_refused_when_the_callback_is_created(wrong, error, received):
    with pytest.raises(error) as refused:
        PlacementCallback(**wrong)
    assert received in refused.value.received


def test_accelerators_that_are_not_here_are_refused_before_the_search(monkeypatch):
    model = make_model("keras")
    own = train_function_of(model)
    with monkeypatch.context() as patched:
        patched.setattr(PlacementCallback, "_place", lambda *_: pytest.fail("a batch was placed"))
        with pytest.raises(ApplyError, match=r"device 'GPU:0'.*this machine: CPU:0, CPU:1.*devices=\{"):
            fit(model, callback(topology="2xP100"))
        with pytest.raises(ApplyError, match="device 'GPU:1'"):
            fit(model, callback(topology="2xP100", devices={"GPU:0": "CPU:1"}))
    assert model.train_function is own
    call = callback(topology="2xP100", devices={"GPU:0": "CPU:1", "GPU:1": "CPU:2"})
    fit(model, call)
    assert set(call.actual.counts) <= {"CPU:0", "GPU:0", "GPU:1"}


@both
def test_an_error_in_a_step_brings_everything_back(package):
    def broken():
        yield X[:4], Y[:4]
        raise RuntimeError("no more data")

    model = make_model(package)
    own = train_function_of(model)
    with pytest.raises(Exception, match="no more data"):
        fit(model, callback(), x=broken(), y=None, batch_size=None, steps_per_epoch=5)
    assert model.train_function is own
    assert devices_of(model) == {"CPU:0"}
    with pytest.raises(InfeasibleError):
        fit(model, callback(max_memory=dict.fromkeys(DEVICES, "100B")))
    assert model.train_function is own
    assert np.isfinite(fit(model)["loss"]).all()


def test_an_error_in_another_callback_is_made_good_at_the_next_fit():
    keras = keras_of("keras")

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyError("stop")

    model, call = make_model("keras"), callback()
    own = train_function_of(model)
    with pytest.raises(KeyError):
        fit(model, call, Fails())
    call.restore()
    assert model.train_function is own and devices_of(model) == {"CPU:0"}
    with pytest.raises(KeyError):
        fit(model, call, Fails())
    fit(model, call)
    assert model.train_function is own and devices_of(model) == {"CPU:0"}


def test_a_placement_that_cannot_be_made_leaves_the_model_training_its_own_weights(monkeypatch):
    model = make_model("keras")
    fit(model)
    swap, swapped = tf_internals.swap_handle, []

    def interrupted(variable, new):
        if len(swapped) == 3:
            raise KeyboardInterrupt
        swap(variable, new)
        swapped.append(variable)

    monkeypatch.setattr(tf_internals, "swap_handle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback())
    monkeypatch.undo()
    weights = model.get_weights()
    fit(model)
    assert not any(np.array_equal(a, b) for a, b in zip(model.get_weights(), weights, strict=True))


@pytest.mark.slow
def test_a_model_whose_fit_failed_is_given_back_by_a_fit_of_another():
    keras = keras_of("keras")

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyError("stop")

    first, second, call = make_model("keras"), make_model("keras"), callback()
    own = train_function_of(first)
    with pytest.raises(KeyError):
        fit(first, call, Fails())
    fit(second, call)
    assert first.train_function is own
    assert devices_of(first) == devices_of(second) == {"CPU:0"}
    weights = second.get_weights()
    fit(first)
    for a, b in zip(second.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_train_function_comes_back_even_if_the_variables_do_not(monkeypatch):
    model, call = make_model("keras"), callback()
    own = train_function_of(model)

    def fails(placed):
        raise RuntimeError("no room at home")

    monkeypatch.setattr(Placed, "restore", fails)
    with pytest.raises(RuntimeError, match="no room at home"):
        fit(model, call)
    assert model.train_function is own


@both
def test_refusals_change_nothing_and_name_a_way_out(package):
    eager = make_model(package, run_eagerly=True)
    with pytest.raises(SourceError, match="run_eagerly=False"):
        fit(eager, callback())
    missing = make_model(package)
    with pytest.raises(ApplyError, match="this machine: CPU:0, CPU:1"):
        fit(missing, callback(devices={"CPU:1": "GPU:0"}))
    assert devices_of(missing) == {"CPU:0"}


def test_one_callback_a_fit():
    model = make_model("keras")
    own = train_function_of(model)
    with pytest.raises(ApplyError, match="two PlacementCallbacks in one fit"):
        model.fit(X, Y, batch_size=4, verbose=0, callbacks=[callback(), callback()])
    assert train_function_of(model) is own
    model.fit(X, Y, batch_size=4, verbose=0, callbacks=[callback()])


def test_distribution_strategies_are_refused():
    with tf.distribute.OneDeviceStrategy("/cpu:1").scope():
        model = make_model("keras")
    with pytest.raises(SourceError, match="outside strategy"):
        fit(model, callback())


@pytest.mark.filterwarnings("default")
def test_a_model_with_jit_compile_that_is_to_run_op_by_op_is_warned_of():
    model = make_model("keras", jit_compile=True)
    with pytest.warns(UserWarning, match="compile='none'"):
        history = fit(model, callback(compile="none"))
    assert np.isfinite(history["loss"]).all()


def test_a_model_with_jit_compile_stays_compiled():
    plain, model = make_model("keras", jit_compile=True), make_model("keras", jit_compile=True)
    mine, few = callback(placer="single"), {"epochs": 1, "steps_per_epoch": 4}  # before steps op by op are tried
    np.testing.assert_allclose(fit(model, mine, **few)["loss"], fit(plain, **few)["loss"], rtol=1e-4)
    assert mine.actual.clusters.clusters


@pytest.mark.slow
@both
@pytest.mark.filterwarnings("ignore:model .* was compiled with jit_compile")
def test_what_xla_would_run_beside_the_placed_step_runs_op_by_op_meanwhile(package):
    beside = {"validation_data": (X, Y), "validation_batch_size": 4}

    def one_more(model):
        return keras_of(package).callbacks.LambdaCallback(on_epoch_end=lambda *_: model.train_on_batch(X[:4], Y[:4]))

    plain, placed, mine = make_model(package), make_model(package, jit_compile=True), callback()
    wanted = fit(plain, one_more(plain), **beside)
    functions = train_function_of(placed), placed.test_function, placed.predict_function
    assert_same(wanted, fit(placed, mine, one_more(placed), **beside))
    assert len(set(mine.placement.devices.values())) > 1
    assert_same_weights(plain, placed)
    assert placed.jit_compile
    assert (placed.train_function, placed.test_function, placed.predict_function) == functions
    assert np.isfinite(placed.evaluate(X, Y, verbose=0)).all()  # by XLA again


def test_another_fit_after_one_that_failed_outside_of_a_step_is_not_placed():
    class FailedError(Exception):
        pass

    def fail(*_):
        raise FailedError

    model, mine = make_model("keras"), callback()
    with pytest.raises(FailedError):
        fit(model, mine, keras_of("keras").callbacks.LambdaCallback(on_epoch_end=fail))
    history = fit(model, sample_weight=np.ones(len(X), np.float32))
    assert np.isfinite(history["loss"]).all()
    mine.restore()
    assert devices_of(model) == {DEVICES[0]}


@pytest.mark.parametrize("epoch", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_fit_within_a_fit_is_not_placed_and_the_outer_one_goes_on(epoch):
    weights = np.linspace(0, 1, len(X), dtype=np.float32)
    seen = []

    def within(model):
        def fits(now, logs=None):
            if now == epoch:
                fit(model, epochs=1, batch_size=5, sample_weight=weights)

        return keras_of("keras").callbacks.LambdaCallback(
            on_epoch_begin=fits, on_train_batch_end=lambda batch, logs=None: seen.append(len(devices_of(model)))
        )

    plain, placed = make_model("keras"), make_model("keras")
    wanted = fit(plain, within(plain), epochs=3)
    assert {*seen} == {1}
    seen.clear()
    assert_same(wanted, fit(placed, callback(), within(placed), epochs=3))
    assert min(seen) > 1
    assert_same_weights(plain, placed)
