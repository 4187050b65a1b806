"""Models of many kinds in float64, each with a few batches: what `test_split_models.py` splits."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import sonnet as snt
import tensorflow as tf
import tf_keras

BATCH = 12
STEPS = 5
L = keras.layers


def cross_entropy() -> Any:
    """In the precision of the day."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(model: Any, optimizer: Any, loss: Any = "", **options: Any) -> Any:
    """A compiled model; a loss of None is the model's own affair."""
    model.compile(optimizer, cross_entropy() if loss == "" else loss, jit_compile=False, **options)
    return model


def normal(*shape: int) -> Any:
    return lambda random: random.normal(size=(BATCH, *shape))


def numbers(high: int, *shape: int) -> Any:
    return lambda random: random.integers(0, high, (BATCH, *shape))


def mlp() -> Any:
    model = keras.Sequential([L.Input((6,)), L.Dense(8, "relu"), L.LayerNormalization(), L.Dense(5)])
    return compiled(model, keras.optimizers.SGD(0.1, momentum=0.9), metrics=["accuracy"]), (normal(6), numbers(5))


def cnn(layers: Any = keras.layers) -> Any:
    """Convolutions with a BatchNorm of several layers."""
    return [
        layers.Conv2D(4, 3, strides=2),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.MaxPool2D(),
        layers.Flatten(),
        layers.Dense(6),
        layers.BatchNormalization(momentum=0.8),
        layers.Dense(5),
    ]


def batch_norm() -> Any:
    return compiled(keras.Sequential([L.Input((9, 9, 2)), *cnn()]), keras.optimizers.SGD(0.1)), (
        normal(9, 9, 2),
        numbers(5),
    )


def fused_batch_norm() -> Any:
    """In float32, as the fused kernel has no other."""
    layers = tf_keras.layers
    model = tf_keras.Sequential([layers.Input((9, 9, 2)), *cnn(layers)])
    model.compile(tf_keras.optimizers.SGD(0.1), tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, (lambda random: random.normal(size=(BATCH, 9, 9, 2)).astype("float32"), numbers(5))


def lstm() -> Any:
    """A loop, and sparse gradients of an embedding."""
    model = keras.Sequential([L.Input((5,)), L.Embedding(20, 4), L.LSTM(4), L.Dense(5)])
    return compiled(model, "adam"), (numbers(20, 5), numbers(5))


def transformer() -> Any:
    """Attention with masks of padding and of the future."""
    ids = L.Input((6,), dtype="int32")
    x = L.Embedding(20, 8, mask_zero=True)(ids)
    x = L.LayerNormalization()(x + L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True))
    x = L.LayerNormalization()(x + L.Dense(8)(L.Dense(16, "gelu")(x)))
    return compiled(keras.Model(ids, L.Dense(5)(x)), "adamw"), (numbers(20, 6), numbers(5, 6))


class Pick(L.Layer):
    """Some steps of each sequence, by their positions."""

    def call(self, x: Any, positions: Any) -> Any:
        return tf.gather(x, positions, batch_dims=1)


def masked_words() -> Any:
    """Predicts words at positions of a sequence, of which some stand twice."""
    ids, positions = L.Input((6,), dtype="int32"), L.Input((4,), dtype="int32")
    x = L.Conv1D(8, 3, padding="same")(L.Embedding(20, 8)(ids))
    return compiled(keras.Model([ids, positions], L.Dense(5)(Pick()(x, positions))), "adam"), (
        (numbers(20, 6), numbers(6, 4)),
        numbers(5, 4),
    )


def masked_sequences() -> Any:
    """Losses over the steps that are not padding, of which slices have different numbers."""
    model = keras.Sequential(
        [L.Input((5,)), L.Embedding(4, 4, mask_zero=True), L.GRU(4, return_sequences=True), L.Dense(3)]
    )
    return compiled(model, "sgd", weighted_metrics=["accuracy"]), (numbers(4, 5), numbers(3, 5))


class TwoTowers(keras.Model):
    """Each user's item against those of all others in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = L.Dense(4), L.Dense(4)

    def call(self, inputs: Any) -> Any:
        return tf.matmul(self.user(inputs["user"]), self.item(inputs["item"]), transpose_b=True)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = self(data, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(logits)[0]), logits)
            loss = tf.reduce_mean(losses)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def in_batch_negatives() -> Any:
    return compiled(TwoTowers(), keras.optimizers.SGD(0.1), None), ({"user": normal(6), "item": normal(3)},)


class Routed(L.Layer):
    """Experts that take as many examples as fit; the others go by. A loss for balance is a product of means."""

    def build(self, shape: Any) -> None:
        self.gate = self.add_weight(shape=(shape[-1], 3))
        self.experts = self.add_weight(shape=(3, shape[-1], 4), initializer="glorot_uniform")

    def call(self, x: Any) -> Any:
        shares = tf.nn.softmax(x @ self.gate)
        chosen = tf.one_hot(tf.argmax(shares, -1), 3, dtype=x.dtype)
        place = tf.cumsum(chosen) * chosen
        taken = chosen * tf.cast(place <= 5, x.dtype)
        self.add_loss(3 * tf.reduce_sum(tf.reduce_mean(chosen, 0) * tf.reduce_mean(shares, 0)))
        return tf.einsum("be,bi,eio->bo", taken * shares, x, self.experts)


def mixture_of_experts() -> Any:
    model = keras.Sequential([L.Input((6,)), Routed(), L.Dense(5)])
    return compiled(model, keras.optimizers.SGD(0.1)), (normal(6), numbers(5))


def several_outputs() -> Any:
    """Sums beside means, and weights of samples."""
    x = L.Input((6,))
    hidden = L.Dense(8, "tanh")(x)
    model = keras.Model(x, {"a": L.Dense(5, name="a")(hidden), "b": L.Dense(2, name="b")(hidden)})
    losses = {"a": cross_entropy(), "b": keras.losses.MeanSquaredError(reduction="sum")}
    weights = lambda random: {"a": random.uniform(size=BATCH), "b": random.uniform(size=BATCH)}  # noqa: E731
    return compiled(model, "rmsprop", losses, weighted_metrics={"b": ["mae"]}), (
        normal(6),
        {"a": numbers(5), "b": normal(2)},
        weights,
    )


class Penalty(L.Layer):
    """Adds a loss of the batch that is no mean of examples' losses."""

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * tf.sqrt(tf.reduce_mean(tf.square(x)) + 1e-3))
        return x


def regularized() -> Any:
    layers = [L.Dense(8, "tanh", activity_regularizer="l2", kernel_regularizer="l2"), Penalty(), L.Dense(5)]
    return compiled(keras.Sequential([L.Input((6,)), *layers]), keras.optimizers.SGD(0.1)), (normal(6), numbers(5))


class Clipped(keras.Model):
    """Clips the gradients' norm in its own step."""

    def __init__(self) -> None:
        super().__init__()
        self.head = L.Dense(5)

    def call(self, x: Any) -> Any:
        return self.head(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.3)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss, "norm": norm}


def clipped_in_step() -> Any:
    return compiled(Clipped(), "adam"), (normal(6), numbers(5))


class Gan(keras.Model):
    """Two optimizers, of which the second reads what the first has written."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = L.Dense(3), keras.Sequential([L.Dense(6, "tanh"), L.Dense(1)])
        self.second = keras.optimizers.SGD(0.05)

    def build(self, shape: Any) -> None:
        self.generator.build(shape)
        self.critic.build((None, 3))
        self.second.build(self.generator.trainable_variables)
        self.built = True

    def call(self, x: Any) -> Any:
        return self.critic(self.generator(x))

    def train_step(self, data: Any) -> Any:
        noise, real = data
        loss = tf.nn.sigmoid_cross_entropy_with_logits
        with tf.GradientTape() as tape:
            made, held = self(noise), self.critic(real)
            critic = tf.reduce_mean(loss(tf.zeros_like(made), made)) + tf.reduce_mean(loss(tf.ones_like(held), held))
        self.optimizer.apply(tape.gradient(critic, self.critic.trainable_variables), self.critic.trainable_variables)
        with tf.GradientTape() as tape:
            made = self(noise)
            fooled = tf.reduce_mean(loss(tf.ones_like(made), made))
        self.second.apply(tape.gradient(fooled, self.generator.trainable_variables), self.generator.trainable_variables)
        return {"critic": critic, "fooled": fooled}


def gan() -> Any:
    model = Gan()
    model.build((None, 4))
    return compiled(model, keras.optimizers.Adam(0.01), None), (normal(4), normal(3))


def mixed_precision() -> Any:
    """Half floats, a scale of the loss and a condition on whether gradients are finite."""
    half = keras.dtype_policies.DTypePolicy("mixed_float16")
    model = keras.Sequential([L.Input((6,)), L.Dense(8, "relu", dtype=half), L.Dense(5, dtype="float32")])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=64)
    return compiled(model, optimizer), (normal(6), numbers(5))


def accumulated() -> Any:
    model = keras.Sequential([L.Input((6,)), L.Dense(5)])
    return compiled(model, keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)), (normal(6), numbers(5))


def averaged() -> Any:
    """Moving averages of weights, weight decay, clipping, and a metric that counts."""
    model = keras.Sequential([L.Input((6,)), L.Dense(8, "relu"), L.Dense(1, "sigmoid")])
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True, clipnorm=0.05)
    return compiled(model, optimizer, "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")]), (
        normal(6),
        numbers(2, 1),
    )


def dropout() -> Any:
    model = keras.Sequential([L.Input((8,)), L.Dense(7, "relu"), L.Dropout(0.5), L.Dense(5)])
    return compiled(model, keras.optimizers.SGD(0.1)), (normal(8), numbers(5))


def texts() -> Any:
    """Strings that are cut into words and looked up."""
    words = L.TextVectorization(output_sequence_length=4, vocabulary=["a", "b", "c"])
    kinds = L.StringLookup(vocabulary=["x", "y"])
    text, kind = (L.Input((), dtype="string", name=name) for name in ("text", "kind"))
    x = L.Concatenate()([L.GlobalAveragePooling1D()(L.Embedding(6, 4)(words(text))), L.Embedding(4, 2)(kinds(kind))])
    model = keras.Model({"text": text, "kind": kind}, L.Dense(5)(x))
    inputs = {
        "text": lambda random: np.array([" ".join(random.choice([*"abcd"], 3)) for _ in range(BATCH)], object),
        "kind": lambda random: random.choice(["x", "y", "z"], BATCH).astype(object),
    }
    return compiled(model, "adam"), (inputs, numbers(5))


def module() -> Any:
    """A Sonnet module and a plain function."""
    net = snt.Sequential([snt.Linear(8), tf.nn.relu, snt.LayerNorm(-1, True, True), snt.Linear(5)])
    optimizer = snt.optimizers.Adam(0.01)
    net(tf.zeros((1, 6)))

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, net(x)))
        optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        return {"loss": loss}

    step.variables = [*net.variables, *optimizer.variables]
    return step, (lambda random: random.normal(size=(BATCH, 6)).astype("float32"), numbers(5))


def build(name: str, seed: int = 0) -> tuple[Any, list[Any]]:
    """A model or a function, and its batches."""
    keras.utils.set_random_seed(seed)
    source, makers = globals()[name]()
    random = np.random.default_rng(seed)
    batches = [tf.nest.map_structure(lambda make: make(random), makers) for _ in range(STEPS)]
    return source, [batch[0] if len(batch) == 1 else batch for batch in batches]


def variables(source: Any) -> dict[str, Any]:
    """All state, by number and name."""
    if isinstance(source, keras.Model):
        found = [*source.variables, *source.optimizer.variables]
        found += source.second.variables if isinstance(source, Gan) else []
        return {f"{i} {v.path}": v.numpy() for i, v in enumerate(found)}
    found = [*source.variables, *source.optimizer.variables] if isinstance(source, tf_keras.Model) else source.variables
    return {f"{i} {v.name}": v.numpy() for i, v in enumerate(found)}
