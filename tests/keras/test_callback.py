"""PlacementCallback in `fit`, with Keras 3 and tf_keras: the same training, placed, and everything back afterwards."""

import importlib
import inspect

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.placing import random_placement
from tfplace.apply.placed import Placed
from tfplace.cost.profile import Profile
from tfplace.errors import (
    ApplyError,
    InfeasibleError,
    InputError,
    PlacementError,
    SourceError,
    TopologyError,
    UnknownNameError,
)
from tfplace.extract import tf_internals
from tfplace.keras import PlacementCallback

DEVICES = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
RNG = np.random.default_rng(0)
X = RNG.random((22, 6), np.float32)
Y = RNG.integers(3, size=22)
# Grappler fuses the plain step and not the placed one: the last bits differ, and Adam makes them part of its step.
CLOSE = {"rtol": 2e-3, "atol": 2e-3}

both = pytest.mark.parametrize("package", ["keras", "tf_keras"])


def keras_of(package):
    return importlib.import_module(package)


def make_model(package, name=None, **compile_arguments):
    keras = keras_of(package)
    keras.utils.set_random_seed(0)
    layers = keras.layers
    names = [f"{name}_{i}" if name else None for i in range(3)]
    first, norm = layers.Dense(8, "tanh", name=names[0]), layers.BatchNormalization(name=names[1])
    model = keras.Sequential([layers.Input((6,)), first, norm, layers.Dense(3, name=names[2])], name=name)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, **{"metrics": ["accuracy"], **compile_arguments})
    return model


def train_function_of(model):
    model.make_train_function()
    return model.train_function


def callback(**arguments):
    return PlacementCallback(**{"placer": "round_robin", "budget": 10, "verbose": 0, **arguments})


def fit(model, *callbacks, **arguments):
    given = {"x": X, "y": Y, "batch_size": 4, "epochs": 2, "verbose": 0, "shuffle": False, **arguments}
    return model.fit(callbacks=list(callbacks), **given).history


def devices_of(model):
    tensors = [getattr(v, "value", v) for v in [*model.weights, *_slots(model)]]
    return {(t() if callable(t) else t).device[-5:] for t in tensors}


def _slots(model):
    variables = model.optimizer.variables
    return variables() if callable(variables) else variables


def assert_same(plain, placed):
    assert set(plain) == set(placed)
    for name in plain:
        np.testing.assert_allclose(placed[name], plain[name], **CLOSE, err_msg=name)


def assert_same_weights(plain, placed):
    for a, b in zip(plain.get_weights(), placed.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, **CLOSE)


@both
@pytest.mark.parametrize("steps", [1, 3])
def test_fit_is_the_same_with_validation_and_a_partial_last_batch(package, steps):
    plain, placed, call = (
        make_model(package, steps_per_execution=steps),
        make_model(package, steps_per_execution=steps),
        callback(),
    )
    own = train_function_of(placed)
    assert_same(fit(plain, validation_data=(X, Y)), fit(placed, call, validation_data=(X, Y)))
    assert_same_weights(plain, placed)
    assert int(placed.optimizer.iterations) == int(plain.optimizer.iterations) == 12
    assert len(call.actual.counts) >= 2
    assert call.actual.moved == ()
    assert devices_of(placed) == {"CPU:0"}
    assert placed.train_function is own
    assert_same(*({"all": m.evaluate(X, Y, verbose=0)} for m in (plain, placed)))
    np.testing.assert_allclose(placed.predict(X, verbose=0), plain.predict(X, verbose=0), **CLOSE)


@both
def test_variables_live_on_their_devices_during_fit(package):
    keras = keras_of(package)
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(devices_of(self.model))

    model = make_model(package)
    fit(model, callback(), Look())
    assert all(len(devices) >= 3 for devices in seen)
    assert len(seen) == 12
    assert devices_of(model) == {"CPU:0"}


@both
def test_second_fit_keeps_the_placement_and_goes_on_training(package):
    plain, placed, call = make_model(package), make_model(package), callback()
    fit(plain), fit(placed, call)
    first, graph = call.placement, call.graph
    assert_same(fit(plain), fit(placed, call))
    assert call.placement is first and call.graph is graph
    assert_same_weights(plain, placed)
    fit(placed, call, batch_size=5)
    assert call.placement is not first
    second = call.placement
    placed.compile(keras_of(package).optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    fit(placed, call, batch_size=5)
    assert call.placement is not second


@both
def test_plain_fit_before_and_after(package):
    plain, placed = make_model(package), make_model(package)
    for arguments in ((), (callback(),), ()):
        assert_same(fit(plain, validation_data=(X, Y)), fit(placed, *arguments, validation_data=(X, Y)))
    assert_same_weights(plain, placed)


@both
def test_checkpoints_early_stopping_and_loading(package, tmp_path):
    keras = keras_of(package)
    path = str(tmp_path / "best.weights.h5")
    checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=True, monitor="val_loss", save_best_only=True)
    stop = keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=10.0, restore_best_weights=True)
    model, call = make_model(package), callback()
    history = fit(model, call, checkpoint, stop, epochs=5, validation_data=(X, Y))
    assert len(history["loss"]) == 2
    after = model.evaluate(X, Y, verbose=0)
    other = make_model(package)
    fit(other, epochs=1)  # Keras loads optimizer state only into an optimizer that has some
    other.load_weights(path)
    assert np.isfinite(other.evaluate(X, Y, verbose=0)).all()
    model.save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    np.testing.assert_allclose(loaded.evaluate(X, Y, verbose=0), after, rtol=1e-5)
    assert "device" not in str(loaded.get_config())
    fit(loaded, callback())


@both
def test_whole_model_saved_in_the_middle_of_a_placed_fit(package, tmp_path):
    keras = keras_of(package)
    checkpoint = keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.keras"))
    model = make_model(package)
    fit(model, callback(), checkpoint)
    loaded = keras.models.load_model(str(tmp_path / "2.keras"))
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(loaded.optimizer.iterations) == 12


def _batches():
    while True:
        for i in range(0, 20, 5):
            yield X[i : i + 5], Y[i : i + 5]


DATA = {
    "generator": lambda: {"x": _batches(), "y": None, "batch_size": None, "steps_per_epoch": 4},
    "dataset": lambda: {
        "x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).repeat(),
        "y": None,
        "batch_size": None,
        "steps_per_epoch": 3,
    },
    "class_weight": lambda: {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}},
    "sample_weight": lambda: {"sample_weight": np.linspace(0.5, 1.5, len(X)).astype(np.float32)},
}


@pytest.mark.parametrize(
    ("package", "kind"),
    [*(("keras", kind) for kind in DATA), ("tf_keras", "generator"), ("tf_keras", "class_weight")],
)
def test_generators_datasets_and_weights(package, kind):
    plain, placed = make_model(package), make_model(package)
    assert_same(fit(plain, **DATA[kind](), epochs=1), fit(placed, callback(), **DATA[kind](), epochs=1))
    assert_same_weights(plain, placed)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # which Keras says of such data in any case
def test_dataset_that_ends_in_the_middle_of_an_execution():
    def five_batches():
        return ((X[i : i + 5], Y[i : i + 5]) for i in range(0, 22, 5))

    signature = (tf.TensorSpec((None, 6)), tf.TensorSpec((None,), tf.int64))
    dataset = tf.data.Dataset.from_generator(five_batches, output_signature=signature)
    plain, placed = (make_model("keras", steps_per_execution=3) for _ in range(2))
    arguments = {"x": dataset, "y": None, "batch_size": None}
    assert_same(fit(plain, **arguments), fit(placed, callback(), **arguments))
    assert int(placed.optimizer.iterations) == int(plain.optimizer.iterations) == 10
    assert devices_of(placed) == {"CPU:0"}


def test_custom_train_step():
    import keras

    class Twice(keras.Sequential):
        def train_step(self, data):
            x, y = data
            logs = super().train_step((x, y))
            return {**logs, "first": tf.reduce_sum(x)}

    def make():
        keras.utils.set_random_seed(0)
        model = Twice([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    plain, placed, call = make(), make(), callback()
    assert_same(fit(plain), fit(placed, call))
    assert len(call.actual.counts) >= 2


@both
def test_a_placement_made_before_is_used(package):
    def model():
        keras_of(package).backend.clear_session()  # op names carry the names that Keras numbers
        return make_model(package, metrics=[], name="named")

    first = model()
    own = train_function_of(first)
    graph = tfplace.extract(first, (X[:11], Y[:11]))
    placement = random_placement(graph, DEVICES)
    call = callback(placement=placement)
    fit(first, call, batch_size=11)
    assert call.placement is placement
    assert call.graph.fingerprint == placement.graph_fingerprint
    assert first.train_function is own
    with pytest.raises(ApplyError, match="Drop the last partial batch"):
        fit(model(), callback(placement=placement), x=X[:15], y=Y[:15], batch_size=11)
    with pytest.raises(PlacementError):
        fit(model(), callback(placement=placement), batch_size=8)


def test_a_file_of_a_placement_is_used(tmp_path):
    keras_of("keras").backend.clear_session()
    model = make_model("keras", metrics=[], name="named")
    graph = tfplace.extract(model, (X[:11], Y[:11]))
    placement = random_placement(graph, DEVICES)
    placement.save(tmp_path / "placement.json")
    call = callback(placement=tmp_path / "placement.json")
    fit(model, call, batch_size=11)
    assert call.placement.devices == placement.devices


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"placer": "heftt"}, UnknownNameError, "'heftt'.*Did you mean 'heft'"),
        ({"budget": "soon"}, InputError, "'soon'"),
        ({"topology": "no_such.json"}, TopologyError, "no_such.json"),
        ({"placement": "no_such.json"}, PlacementError, "no_such.json"),
    ],
)
def test_wrong_arguments_are_refused_before_any_fit(wrong, error, message):
    with pytest.raises(error, match=message):
        PlacementCallback(**wrong)


@both
def test_accelerators_that_are_not_here_are_refused_before_the_search(package, monkeypatch):
    model = make_model(package)
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


def test_what_place_takes_is_passed_on(tmp_path, monkeypatch):
    given = {
        "profile": Profile(),
        "init": "heft",
        "objective": "throughput",
        "grouper": "scope",
        "groups": 7,
        "run_dir": tmp_path,
        "resume": False,
        "weights": "weights.npz",
        "fine_tune": 3,
        "tensorboard": tmp_path / "board",
    }
    seen = {}

    class SeenError(Exception):
        pass

    def place(graph, **arguments):
        seen.update(arguments)
        raise SeenError

    with monkeypatch.context() as patched:
        patched.setattr("tfplace.api.place", place)
        with pytest.raises(SeenError):
            fit(make_model("keras"), callback(**given))
    assert {name: seen[name] for name in given} == given
    assert set(seen) <= set(inspect.signature(tfplace.place).parameters)


def test_a_search_is_kept_in_a_directory_and_found_again(tmp_path):
    def place():
        keras_of("keras").backend.clear_session()
        call = callback(placer="local_search", budget=40, run_dir=tmp_path, grouper="scope", groups=5, init="heft")
        fit(make_model("keras", name="named"), call)
        return call.placement

    first, size = place(), (tmp_path / "evaluations.bin").stat().st_size
    assert place().devices == first.devices
    assert (tmp_path / "evaluations.bin").stat().st_size == size


@both
def test_what_it_prints(package, capsys):
    fit(make_model(package), callback(verbose=1))
    text = capsys.readouterr().out
    assert "ops ran on 4 devices" in text
    assert "CPU:3" in text
    fit(make_model(package), callback(verbose=0))
    assert capsys.readouterr().out == ""


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
        fit(model, callback(max_memory=dict.fromkeys(DEVICES, "1kB")))
    assert model.train_function is own
    assert np.isfinite(fit(model)["loss"]).all()


@both
def test_an_error_in_another_callback_is_made_good_at_the_next_fit(package):
    keras = keras_of(package)

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyError("stop")

    model, call = make_model(package), callback()
    own = train_function_of(model)
    with pytest.raises(KeyError):
        fit(model, call, Fails())
    call.restore()
    assert model.train_function is own and devices_of(model) == {"CPU:0"}
    with pytest.raises(KeyError):
        fit(model, call, Fails())
    fit(model, call)
    assert model.train_function is own and devices_of(model) == {"CPU:0"}


@both
def test_a_placement_that_cannot_be_made_leaves_the_model_training_its_own_weights(package, monkeypatch):
    model = make_model(package)
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


@both
def test_a_model_whose_fit_failed_is_given_back_by_a_fit_of_another(package):
    keras = keras_of(package)

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyError("stop")

    first, second, call = make_model(package), make_model(package), callback()
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


@both
def test_the_train_function_comes_back_even_if_the_variables_do_not(package, monkeypatch):
    model, call = make_model(package), callback()
    own = train_function_of(model)

    def fails(placed):
        raise RuntimeError("no room at home")

    monkeypatch.setattr(Placed, "restore", fails)
    with pytest.raises(RuntimeError, match="no room at home"):
        fit(model, call)
    assert model.train_function is own


@both
def test_refusals_change_nothing_and_name_a_way_out(package):
    keras = keras_of(package)
    eager = make_model(package, run_eagerly=True)
    with pytest.raises(SourceError, match="run_eagerly=False"):
        fit(eager, callback())

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x):
            return self.dense(x)

    unbuilt = Subclassed()
    unbuilt.compile("sgd", "mse")
    with pytest.raises(SourceError, match="not built"):
        fit(unbuilt, callback())
    missing = make_model(package)
    with pytest.raises(ApplyError, match="this machine: CPU:0, CPU:1"):
        fit(missing, callback(devices={"CPU:1": "GPU:0"}))
    assert devices_of(missing) == {"CPU:0"}


@both
def test_one_callback_a_fit(package):
    model = make_model(package)
    own = train_function_of(model)
    with pytest.raises(ApplyError, match="two PlacementCallbacks in one fit"):
        model.fit(X, Y, batch_size=4, verbose=0, callbacks=[callback(), callback()])
    assert train_function_of(model) is own
    model.fit(X, Y, batch_size=4, verbose=0, callbacks=[callback()])


@both
def test_distribution_strategies_are_refused(package):
    with tf.distribute.OneDeviceStrategy("/cpu:1").scope():
        model = make_model(package)
    with pytest.raises(SourceError, match="outside strategy"):
        fit(model, callback())


@both
@pytest.mark.filterwarnings("default")
def test_jit_compile_is_said_plainly(package):
    model = make_model(package, jit_compile=True)
    with pytest.warns(UserWarning, match="without XLA"):
        history = fit(model, callback())
    assert np.isfinite(history["loss"]).all()


@both
def test_every_hook_of_keras_is_there(package):
    base = keras_of(package).callbacks.Callback
    call = callback()
    for name in dir(base):
        if not name.startswith("__") and callable(getattr(base, name)):
            assert callable(getattr(call, name)), name
    with pytest.raises(AttributeError):
        _ = call.no_such_thing
