"""Training steps of many kinds, small enough for a CPU: what predictions of one device are checked against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from tfplace_zoo import zoo

Step = tuple[Any, Any]
"""What `tfplace.extract` takes: a compiled model or a tf.function, and a batch of specs."""

layers, Spec = keras.layers, tf.TensorSpec


def _compiled(model: Any, optimizer: Any = "adam", loss: Any = "mse") -> Any:
    model.compile(optimizer, loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def _stack(width: int, depth: int) -> Any:
    x = inputs = keras.Input((width,))
    for _ in range(depth):
        x = layers.Dense(width, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(1, dtype="float32")(x))


def mlp() -> Step:
    return _compiled(_stack(512, 6)), (Spec((2048, 512)), Spec((2048, 1)))


def mlp_sgd() -> Step:
    return _compiled(_stack(1024, 4), "sgd"), (Spec((2048, 1024)), Spec((2048, 1)))


def convolutions() -> Step:
    x = inputs = keras.Input((96, 96, 3))
    for filters in (32, 64, 128):
        x = layers.Conv2D(filters, 3, padding="same")(x)
        x = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
    model = keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling2D()(x)))
    return _compiled(model), (Spec((32, 96, 96, 3)), Spec((32, 1)))


def separable_convolutions() -> Step:
    x = inputs = keras.Input((64, 64, 16))
    for filters in (64, 64, 128):
        x = layers.SeparableConv2D(filters, 3, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling2D()(x)))
    return _compiled(model), (Spec((32, 64, 64, 16)), Spec((32, 1)))


def autoencoder() -> Step:
    x = inputs = keras.Input((64, 64, 3))
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    for filters in (32, 3):
        x = layers.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(x)
    return _compiled(keras.Model(inputs, x)), (Spec((64, 64, 64, 3)), Spec((64, 64, 64, 3)))


def lstm_loop() -> Step:
    inputs = keras.Input((200, 128))
    x = layers.LSTM(256)(layers.LSTM(256, return_sequences=True)(inputs))
    return _compiled(keras.Model(inputs, layers.Dense(1)(x))), (Spec((64, 200, 128)), Spec((64, 1)))


def gru_loop() -> Step:
    inputs = keras.Input((100, 64))
    x = layers.Bidirectional(layers.GRU(256))(inputs)
    return _compiled(keras.Model(inputs, layers.Dense(1)(x))), (Spec((64, 100, 64)), Spec((64, 1)))


def attention() -> Step:
    x = inputs = keras.Input((256, 128))
    for _ in range(3):
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(layers.MultiHeadAttention(4, 32)(x, x)))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x)))
    model = keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))
    return _compiled(model), (Spec((16, 256, 128)), Spec((16, 1)))


def _embedding(optimizer: str) -> Step:
    inputs = keras.Input((8,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(100_000, 64)(inputs))
    return _compiled(keras.Model(inputs, layers.Dense(1)(x)), optimizer), (Spec((64, 8), tf.int32), Spec((64, 1)))


def embedding_sgd() -> Step:
    return _embedding("sgd")


def embedding_adam() -> Step:
    return _embedding("adam")


def embedding_adagrad() -> Step:
    return _embedding("adagrad")


def tied_embedding() -> Step:
    class Tied(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.hidden = layers.Embedding(20_000, 128), layers.Dense(128)

        def call(self, x: Any) -> Any:
            mean = tf.reduce_mean(self.table(x), 1)
            return tf.matmul(self.hidden(mean), self.table.embeddings, transpose_b=True)

    model = Tied()
    model(tf.zeros((2, 4), tf.int32))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _compiled(model, "sgd", loss), (Spec((256, 4), tf.int32), Spec((256,), tf.int32))


def mixed_precision() -> Step:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = _stack(512, 6)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    return _compiled(model), (Spec((2048, 512)), Spec((2048, 1)))


def gradient_accumulation() -> Step:
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=4)
    return _compiled(_stack(512, 4), optimizer), (Spec((2048, 512)), Spec((2048, 1)))


def recomputed_gradients() -> Step:
    weights = [tf.Variable(tf.random.normal((512, 512)) * 0.03) for _ in range(8)]

    def block(own: list[Any]) -> Callable[[Any], Any]:
        @tf.recompute_grad
        def call(x: Any) -> Any:
            for w in own:
                x = tf.nn.gelu(x @ w)
            return x

        return call

    blocks = [block(weights[k : k + 2]) for k in range(0, 8, 2)]

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            for part in blocks:
                x = part(x)
            loss = tf.reduce_sum(x)
        for w, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            w.assign_sub(0.01 * gradient)
        return loss

    return step, (Spec((2048, 512)),)


def _loop(rows: int, width: int, turns: int) -> Step:
    w = tf.Variable(tf.random.normal((width, width)) * 0.01)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            for _ in tf.range(turns):
                x = tf.tanh(x @ w)
            loss = tf.reduce_sum(x)
        w.assign_sub(0.01 * tape.gradient(loss, w))
        return loss

    return step, (Spec((rows, width)),)


def one_weight_in_a_loop() -> Step:
    return _loop(64, 512, 200)


def one_weight_in_a_loop_of_few_rows() -> Step:
    return _loop(4, 1024, 200)


def table_read_whole() -> Step:
    table = tf.Variable(tf.zeros((200_000, 64)))

    @tf.function
    def step(i: Any) -> Any:
        out = tf.reduce_sum(tf.gather(table.read_value(), i))
        with tf.control_dependencies([out]):
            table.scatter_sub(tf.IndexedSlices(tf.ones((4, 64)), i))
        return out

    return step, (Spec((4,), tf.int32),)


def routed_experts() -> Step:
    class Experts(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.last = layers.Dense(4), layers.Dense(1)
            hidden = [layers.Dense(512, activation="relu") for _ in range(4)]
            self.experts = [keras.Sequential([layer, layers.Dense(128)]) for layer in hidden]

        def call(self, x: Any) -> Any:
            gates = tf.nn.softmax(self.gate(x))
            chosen = tf.argmax(gates, -1, output_type=tf.int32)
            parts = tf.dynamic_partition(x, chosen, 4)
            places = tf.dynamic_partition(tf.range(tf.shape(x)[0]), chosen, 4)
            made = [expert(part) for expert, part in zip(self.experts, parts, strict=True)]
            y = tf.reshape(tf.dynamic_stitch(places, made), (-1, 128))
            return self.last(y * tf.reduce_max(gates, -1, keepdims=True))

    model = Experts()
    model(tf.zeros((8, 128)))
    return _compiled(model), (Spec((4096, 128)), Spec((4096, 1)))


def _zoo(name: str, **sizes: Any) -> Step:
    built = zoo.build(name, **sizes)
    return built.model, built.batch


STEPS: dict[str, Callable[[], Step]] = {
    **{
        step.__name__: step
        for step in (
            mlp,
            mlp_sgd,
            convolutions,
            separable_convolutions,
            autoencoder,
            lstm_loop,
            gru_loop,
            attention,
            embedding_sgd,
            embedding_adam,
            embedding_adagrad,
            tied_embedding,
            mixed_precision,
            gradient_accumulation,
            recomputed_gradients,
            one_weight_in_a_loop,
            one_weight_in_a_loop_of_few_rows,
            table_read_whole,
            routed_experts,
        )
    },
    "zoo wide_mlp": lambda: _zoo("wide_mlp", batch=512, width=512),
    "zoo two_tower": lambda: _zoo("two_tower", batch=1024, width=256),
    "zoo dlrm": lambda: _zoo("dlrm", batch=512, most_rows=20_000, width=32),
    "zoo rnnlm": lambda: _zoo("rnnlm_2", batch=32, steps=10, units=256, vocabulary=2000),
    "zoo transformer": lambda: _zoo("transformer", batch=8, length=64, layers=2),
    "zoo vit": lambda: _zoo("vit", batch=8, layers=3, width=192, heads=3, size=96),
    "zoo gpt": lambda: _zoo("gpt", batch=4, length=128, layers=3, width=192, heads=3, vocabulary=5000),
    "zoo resnet50": lambda: _zoo("resnet50", batch=4),
    "zoo wavenet": lambda: _zoo("wavenet_2x18", batch=2, samples=1920, residual=32, skip=64),
}
