"""Models and callbacks that train in ways of their own, placed: the same numbers, or an error that says why not."""

import gc
import threading
import time

import pytest
import tensorflow as tf

import tfplace
from tests.keras.fitting import (
    X,
    Y,
    assert_same,
    assert_same_weights,
    but_slowly,
    callback,
    devices_of,
    fit,
    keras_of,
    make_model,
)
from tfplace.errors import SourceError
from tfplace.extraction import tf_internals


def both_ways(make, **arguments):
    """Models after a plain fit and after a placed one, which went the same way."""
    plain, placed = make(), make()
    histories = fit(plain, **arguments), fit(placed, callback(), **arguments)
    assert_same(*histories)
    return plain, placed


@but_slowly
def test_two_networks_with_optimizers_of_their_own_and_no_call(package):
    keras = keras_of(package)
    layers = keras.layers

    class Adversaries(keras.Model):
        def __init__(self, judge, maker):
            super().__init__()
            self.judge, self.maker = judge, maker

        def compile(self):
            super().compile()
            self.of_judge, self.of_maker = keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01)

        def train_step(self, x):
            made = self.maker(x[:, :3])
            with tf.GradientTape() as tape:
                judged = tf.reduce_mean((self.judge(x) - 1.0) ** 2) + tf.reduce_mean(self.judge(made) ** 2)
            weights = self.judge.trainable_weights
            self.of_judge.apply_gradients(zip(tape.gradient(judged, weights), weights, strict=True))
            with tf.GradientTape() as tape:
                fooled = tf.reduce_mean((self.judge(self.maker(x[:, :3])) - 1.0) ** 2)
            weights = self.maker.trainable_weights
            self.of_maker.apply_gradients(zip(tape.gradient(fooled, weights), weights, strict=True))
            return {"judged": judged, "fooled": fooled}

    def make():
        keras.utils.set_random_seed(1)
        judge = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
        model = Adversaries(judge, keras.Sequential([layers.Input((3,)), layers.Dense(6)]))
        model.compile()
        return model

    plain, placed = both_ways(make, x=X, y=None)
    assert_same_weights(plain, placed)


def test_an_optimizer_of_the_train_step_alone():
    keras = keras_of("keras")

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense, self.rate = keras.layers.Dense(1), 0.1
            self.dense.build((None, 6))
            self.built = True

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self(data[0]) ** 2)
            weights = self.trainable_weights
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(self.rate * gradient)
            return {"loss": loss}

    def make():
        keras.utils.set_random_seed(1)
        model = Own()
        model.compile(optimizer=None)
        return model

    both_ways(make)
    trained = tfplace.extract(make(), (X[:4], Y[:4]))
    assert trained.num_ops > tfplace.extract(make(), X[:4], training=False).num_ops
    without = make_model("keras")
    without.compile(optimizer=None)
    with pytest.raises(SourceError, match="which is not compiled with an optimizer"):
        fit(without, callback())


def test_python_control_flow_that_tf_keras_converts():
    keras = keras_of("tf_keras")

    class Branches(keras.layers.Layer):
        def call(self, x):
            if tf.reduce_mean(x) > 0.3:
                x = x * 2.0
            for _ in tf.range(2):
                x = x + 0.5
            return x

    def loss(true, predicted):
        error = tf.reduce_mean((tf.cast(true, tf.float32) - predicted) ** 2)
        if error > 0.5:
            error = error * 3.0
        return error

    def make():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Input((6,)), Branches(), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", loss)
        return model

    plain, placed = both_ways(make)
    assert_same_weights(plain, placed)


@pytest.mark.parametrize(
    ("package", "when"),
    [("keras", "on_train_batch_begin"), pytest.param("tf_keras", "on_train_batch_end", marks=pytest.mark.slow)],
)
def test_a_batch_trained_in_between(package, when):
    keras = keras_of(package)

    class Again(keras.callbacks.Callback):
        pass

    setattr(Again, when, lambda self, batch, logs=None: self.model.train_on_batch(X[:2], Y[:2]) and None)
    plain, placed = make_model(package), make_model(package)
    histories = fit(plain, Again()), fit(placed, callback(), Again())
    assert_same(*histories)
    assert devices_of(placed) == {"CPU:0"}


def test_a_placed_fit_of_shared_layers_in_between():
    keras = keras_of("keras")
    layers = keras.layers

    def train(*more):
        keras.utils.set_random_seed(1)
        shared = keras.Sequential([layers.Input((6,)), layers.Dense(4)])
        first, second = (keras.Sequential([layers.Input((6,)), shared, layers.Dense(1)]) for _ in range(2))
        for model in (first, second):
            model.compile("sgd", "mse")

        class Inner(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                fit(second, *(callback(seed=3) for _ in more))

        history = fit(first, *more, Inner())
        assert devices_of(first) == {"CPU:0"}
        return history, first

    (plain, one), (placed, other) = train(), train(callback())
    assert_same(plain, placed)
    assert_same_weights(one, other)


def test_a_train_function_of_ones_own_is_refused():
    keras = keras_of("keras")

    class Twice(keras.Sequential):
        def make_train_function(self, force=False):
            return super().make_train_function(force)

    model = Twice([keras.layers.Input((6,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(SourceError, match=r"make_train_function of its own.*Override train_step instead"):
        fit(model, callback())


def test_a_fit_in_a_session_is_refused(monkeypatch):
    monkeypatch.setattr(tf.compat.v1, "executing_eagerly_outside_functions", lambda: False)
    with pytest.raises(SourceError, match="without eager execution"):
        fit(make_model("tf_keras"), callback())


def test_a_subclass_may_have_hooks_and_call_those_above():
    said = []

    class Telling(type(callback())):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            said.append(epoch)

        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            said.append(f"batch {batch}")

    fit(make_model("keras"), Telling(placer="round_robin", budget=10, verbose=0), epochs=1, batch_size=11)
    assert said == ["batch 0", "batch 1", 0]


def test_what_tensorboard_draws_of_tf_keras_is_there_again_afterwards():
    keras = keras_of("tf_keras")
    seen = []

    class Board(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(self.model.train_tf_function)

    model = make_model("tf_keras")
    fit(model, Board())
    drawn = model.train_tf_function
    assert drawn is not None and set(seen) == {drawn}
    seen.clear()
    fit(model, callback(), Board())
    assert set(seen) == {None} and model.train_tf_function is drawn


def test_tuples_of_other_threads_stay_whole():
    """A reference to a tuple that is being made, as `gc.get_objects()` takes one, has its maker fail."""
    stop, failed = threading.Event(), []
    variable = tf.Variable([1.0])
    function = tf.function(lambda: variable * 2).get_concrete_function()
    dataset = tf.data.Dataset.range(2).map(lambda _: variable[0])

    def make():
        while not stop.is_set():
            try:
                tuple(time.sleep(0.001) or i for i in range(40))
            except SystemError as error:
                failed.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(5):
            handle = variable.handle
            assert tf_internals.rebind_captures({id(handle): handle}) >= 1
            assert id(handle) in tf_internals.read_by_pipelines()
    finally:
        stop.set()
        thread.join()
    assert not failed
    del function, dataset
    gc.collect()


def test_what_is_live_is_found_among_subclasses_too():
    class Above:
        pass

    class Below(Above):
        pass

    here = [Above(), Below(), Below()]
    assert {id(thing) for thing in tf_internals.live(Above)} == {id(thing) for thing in here}
    assert len(tf_internals.live(Below)) == 2
