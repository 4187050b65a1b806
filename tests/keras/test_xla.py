"""Functions that XLA compiled, called by other callbacks while a placement has the variables on several devices."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.keras.fitting import (
    X,
    Y,
    assert_same,
    assert_same_weights,
    both,
    but_slowly,
    callback,
    fit,
    keras_of,
    make_model,
)
from tfplace.keras import PlacementCallback

LOSS = "sparse_categorical_crossentropy"
pytestmark = pytest.mark.filterwarnings("ignore:model .* was compiled with jit_compile=True")


def generating(keras, **compile_arguments):
    """A model that generates by a function which it compiles when it needs it, and keeps, as keras-hub's do."""

    class Generator(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.last = keras.layers.Dense(8, "tanh"), keras.layers.Dense(3, "softmax")
            self.generate_function = None

        def call(self, x):
            return self.last(self.first(x))

        def step(self, x):
            return tf.argmax(self(x), -1)

        def generate(self):
            if self.generate_function is None:
                self.generate_function = tf.function(self.step, jit_compile=self.jit_compile)
            return self.generate_function(X).numpy()

    keras.utils.set_random_seed(0)
    model = Generator()
    model(X)
    model.compile(keras.optimizers.Adam(0.01), LOSS, **compile_arguments)
    return model


@but_slowly
def test_what_a_model_generates_in_between(package):
    keras = keras_of(package)
    told = {}

    def tell(model):
        lines = told.setdefault(model.jit_compile, [])
        return keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: lines.append(model.generate()))

    plain, placed = generating(keras, jit_compile=False), generating(keras, jit_compile=True)
    np.testing.assert_array_equal(placed.generate(), plain.generate())
    own = placed.generate_function
    assert_same(fit(plain, tell(plain)), fit(placed, tell(placed), callback()))
    np.testing.assert_array_equal(told[True], told[False])
    assert placed.generate_function is own
    np.testing.assert_array_equal(placed.generate(), plain.generate())


@but_slowly
def test_another_model_of_the_same_layers_in_between(package):
    keras = keras_of(package)

    def make():
        model = make_model(package)
        inner = keras.Model(model.inputs, model.layers[0].output)
        inner.compile("sgd", "mse", jit_compile=True)
        inner.predict(X, verbose=0)
        return model, inner

    def use(inner):
        return keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_: (inner.predict(X, verbose=0), inner.train_on_batch(X, X[:, [0] * 8]))
        )

    (plain, plain_inner), (placed, placed_inner) = make(), make()
    own = placed_inner.predict_function
    assert_same(fit(plain, use(plain_inner)), fit(placed, use(placed_inner), callback()))
    assert_same_weights(plain, placed)
    assert placed_inner.jit_compile
    assert placed_inner.predict_function is own


@pytest.mark.parametrize("own", [lambda model: model, lambda model: model.call, lambda model: lambda x: model(x) * 2])
def test_a_function_of_ones_own_is_named_when_the_variables_move(own):
    model = make_model("keras")
    compiled = tf.function(own(model), jit_compile=True)
    other = tf.function(lambda x: x + 1, jit_compile=True)
    before = compiled(X)
    other(X)
    graph = tfplace.extract(model, (X, Y))
    placement = tfplace.place(graph, topology="2xP100", placer="round_robin", progress=False)
    with pytest.warns(UserWarning, match="jit_compile=True reads variables") as warned:
        placed = tfplace.apply(graph, placement, devices={"GPU:0": "CPU:0", "GPU:1": "CPU:1"})
    placed.restore()
    with pytest.warns(UserWarning, match="jit_compile=True reads variables") as warned_by_fit:
        fit(model, callback(), epochs=1)
    assert len(warned) == len(warned_by_fit) == 1
    assert warned[0].filename == __file__
    assert np.isfinite(compiled(X)).all()  # the variables are back
    assert (compiled(X) != before).numpy().any()


def calling(package, functions, failed):
    """A callback that calls each function after an epoch, and notes the names of those that fail."""

    def call(*_):
        for name, function in functions.items():
            try:
                function(X)
            except tf.errors.InvalidArgumentError as error:
                assert "Trying to access resource" in str(error)
                failed.add(name)

    return keras_of(package).callbacks.LambdaCallback(on_epoch_end=call)


def assert_named_if_they_fail(model, package, functions, *others, jit):
    failed, names = set(), {*functions}
    with pytest.warns(UserWarning, match="jit_compile=True") if jit else contextlib.nullcontext([]) as warned:
        fit(model, callback(), *others, calling(package, functions, failed), epochs=1)
    assert failed == (names if jit else set())
    assert sorted(str(w.message).split()[1] for w in warned) == (sorted(names) if jit else [])
    for function in functions.values():
        assert np.isfinite(function(X)).all()  # the variables are back


@both
@pytest.mark.parametrize("jit", [True, False])
def test_a_function_that_is_called_first_in_between_is_named_before(package, jit):
    keras = keras_of(package)
    model = make_model(package)

    class Probe(keras.callbacks.Callback):
        @tf.function(jit_compile=jit)
        def decorated(self, x):
            return self.logits(x)

        def logits(self, x):
            return self.model(x)

    class Held:
        __slots__ = ("parts",)

        def __init__(self):
            self.parts = {"kernels": [model.layers[0].kernel]}

        def bound(self, x):
            return x @ self.parts["kernels"][0]

    def closure(x):
        return model(x)

    def partial(layer, x):
        return layer(x)

    helper = tf.function(closure)

    def default(x, *, inner=helper):
        return inner(x)

    def decorated(x):
        return probe.decorated(x)

    probe, compiled = Probe(), tf.function(jit_compile=jit)
    functions = {one.__name__: compiled(one) for one in (Held().bound, closure, default)}
    functions["functools.partial(<function"] = compiled(functools.partial(partial, model.layers[0]))
    functions["decorated"] = decorated
    assert_named_if_they_fail(model, package, functions, probe, jit=jit)


@pytest.mark.parametrize("jit", [True, False])
def test_a_function_that_calls_a_compiled_one_is_named(jit):
    model = make_model("keras")

    @tf.function(jit_compile=jit)
    def inner(x):
        return model(x)

    product = tf.function(lambda x, w: x @ w, jit_compile=jit)

    def nested(x):
        return tf.function(lambda y: inner(y) + 1)(x)

    def branch(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: x[:, :3])

    def loop(x):
        return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y + inner(x)), (0, tf.zeros((22, 3))))[1]

    def argument(x):
        return product(x, model.layers[0].kernel.value)

    functions = {one.__name__: tf.function(one) for one in (nested, branch, loop, argument)} | {"inner": inner}
    for function in functions.values():
        function(X)
    assert_named_if_they_fail(model, "keras", functions, jit=jit)


def test_nothing_is_said_of_variables_that_stay():
    model = make_model("keras")
    compiled = tf.function(model.call, jit_compile=True)
    compiled(X)
    graph = tfplace.extract(model, (X, Y))
    placement = tfplace.place(graph, topology="2xP100", placer="single", progress=False)
    tfplace.apply(graph, placement, devices={"GPU:0": "CPU:0", "GPU:1": "CPU:1"})
    assert np.isfinite(compiled(X)).all()


def test_convolutions_in_groups_are_compiled_as_keras_compiles_them():
    """TensorFlow itself has no gradient of them on a CPU; their function stays whole, with its kernel's variable."""

    def fitted(callbacks):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((8, 8, 4))
        x = keras.layers.Conv2D(8, 3, groups=4)(keras.layers.Conv2D(4, 1)(inputs))
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(x)))
        model.compile("sgd", "mse", jit_compile=False)
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((8, 8, 8, 4), np.float32), rng.standard_normal((8, 1), np.float32)
        model.fit(x, y, batch_size=4, epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
        return model.get_weights()

    callback = PlacementCallback(placer="round_robin", verbose=0)
    plain, placed = fitted([]), fitted([callback])
    for one, other in zip(plain, placed, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    kept = [body for body in callback.graph.bodies if "Conv2D" in body.graph.op_types]
    assert len(kept) == 1
    (kernel,) = (v.op for v in callback.graph.variables if v.size_bytes == 4 * 9 * 8)
    assert callback.graph.resource[kernel] == callback.graph.resource[kept[0].op] >= 0


@pytest.mark.usefixtures("real_gc")  # TensorFlow and Keras have such functions too
def test_nothing_is_said_of_functions_that_come_to_other_variables():
    model, other = generating(keras, jit_compile=True), make_model("keras")
    model.generate_function = tf.function(model.step, jit_compile=True)  # which is set aside before it is called
    traces = []

    class Probe(keras.callbacks.Callback):
        scale = 2.0

        @tf.function(jit_compile=True)
        def scaled(self, x):
            return self.scale * other(x)

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec((22, 6))])
    def signed(x):
        traces.append(x)
        return x + 1

    probe, failed = Probe(), set()
    functions = {"scaled": probe.scaled, "generate": lambda _: model.generate()}
    fit(model, callback(), probe, calling("keras", functions, failed), epochs=1)
    assert not failed and not traces
    signed(X)
