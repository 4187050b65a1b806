"""PlacementCallback in `fit`, with Keras 3 and tf_keras: the same training, placed, and everything back afterwards."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.keras.fitting import (
    CLOSE,
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
from tests.placing import random_placement
from tfplace.cost.profile import Profile
from tfplace.errors import (
    ApplyError,
    PlacementError,
)


@pytest.mark.parametrize(("package", "steps"), [("keras", 3), ("tf_keras", 1)])
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


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # as Keras says of a plain fit, too
def test_data_of_unknown_length_makes_the_steps_that_it_has_batches_for():
    known, unknown = (make_model("keras") for _ in range(2))
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    histories = [
        model.fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=[callback()]).history
        for model, batches in ((known, data), (unknown, data.filter(lambda x, y: True)))
    ]
    assert_same(*histories)
    assert_same_weights(known, unknown)
    assert int(unknown.optimizer.iterations) == 3 * len(data)


def test_variables_live_on_their_devices_during_fit():
    keras = keras_of("keras")
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(devices_of(self.model))

    model = make_model("keras")
    fit(model, callback(), Look())
    assert all(len(devices) >= 3 for devices in seen)
    assert len(seen) == 12
    assert devices_of(model) == {"CPU:0"}


def test_second_fit_keeps_the_placement_and_goes_on_training():
    plain, placed, call = make_model("keras"), make_model("keras"), callback()
    fit(plain), fit(placed, call)
    first, graph = call.placement, call.graph
    assert_same(fit(plain), fit(placed, call))
    assert call.placement is first and call.graph is graph
    assert_same_weights(plain, placed)
    fit(placed, call, batch_size=5)
    assert call.placement is not first
    second = call.placement
    placed.compile(keras_of("keras").optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    fit(placed, call, batch_size=5)
    assert call.placement is not second


def test_plain_fit_before_and_after():
    plain, placed = make_model("keras"), make_model("keras")
    for arguments in ((), (callback(),), ()):
        assert_same(fit(plain), fit(placed, *arguments))
    assert_same_weights(plain, placed)


@pytest.mark.parametrize("package", ["keras"])
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


def test_whole_model_saved_in_the_middle_of_a_placed_fit(tmp_path):
    keras = keras_of("tf_keras")
    checkpoint = keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.keras"))
    model = make_model("tf_keras")
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
    [
        ("keras", "generator"),
        *(pytest.param("keras", kind, marks=pytest.mark.slow) for kind in ("dataset", "class_weight", "sample_weight")),
        pytest.param("tf_keras", "generator", marks=pytest.mark.slow),
    ],
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


@pytest.mark.slow
def test_training_in_float8():
    plain, placed, call = make_model("keras"), make_model("keras"), callback()
    histories = []
    for model, callbacks in ((plain, []), (placed, [call])):
        model.layers[0].quantize("float8")
        compiled = {"optimizer": "adam", "loss": "sparse_categorical_crossentropy", "jit_compile": False}
        model.compile(**compiled)  # again, as there are other weights
        histories.append(fit(model, *callbacks))
    assert "float8_e5m2" in call.graph.tensor_dtype  # the gradients'
    assert_same(*histories)
    assert_same_weights(plain, placed)


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


@pytest.mark.parametrize("package", ["tf_keras"])
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


def test_what_place_takes_is_passed_on(tmp_path, monkeypatch):
    (tmp_path / "weights.npz").touch()
    given = {
        "placer": "placeto",
        "profile": Profile(),
        "init": "heft",
        "objective": "throughput",
        "grouper": "scope",
        "groups": 7,
        "run_dir": tmp_path,
        "resume": False,
        "weights": tmp_path / "weights.npz",
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


def test_what_it_prints(capsys):
    fit(make_model("keras"), callback(verbose=1))
    text = capsys.readouterr().out
    assert "ops ran on 4 devices" in text
    assert "CPU:3" in text
    fit(make_model("keras"), callback(verbose=0))
    assert capsys.readouterr().out == ""


@both
def test_every_hook_of_keras_is_there(package):
    base = keras_of(package).callbacks.Callback
    call = callback()
    for name in dir(base):
        if not name.startswith("__") and callable(getattr(base, name)):
            assert callable(getattr(call, name)), name
    with pytest.raises(AttributeError):
        _ = call.no_such_thing


@both
def test_a_second_fit_goes_on_with_what_dropout_draws(package):
    keras = keras_of(package)

    def model():
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Input((6,)), keras.layers.Dropout(0.5, seed=1), keras.layers.Dense(3)]
        made = keras.Sequential(layers)
        made.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        return made

    plain, placed, mine = model(), model(), callback()
    wanted = [fit(plain, y=X[:, :3])["loss"] for _ in range(2)]
    found = [fit(placed, mine, y=X[:, :3])["loss"] for _ in range(2)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
