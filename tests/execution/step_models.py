"""Small models of every kind: name -> builder of (source for tfplace.extract, batch, plain step of the batch)."""

import numpy as np
import tensorflow as tf

RNG = np.random.default_rng(0)
STEPS = 6


def _images():
    return [(RNG.random((8, 12, 12, 3), np.float32), RNG.integers(3, size=8).astype(np.int32)) for _ in range(STEPS)]


def _keras_case(model, loss, batches, metrics=()):
    import keras

    model.compile(keras.optimizers.Adam(0.01), loss, metrics=list(metrics))
    return model, batches


def inception_like():
    import keras
    from keras import layers

    x = inputs = keras.Input((12, 12, 3))
    x = layers.Conv2D(6, 3, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    pooled = layers.MaxPooling2D(3, 1, padding="same")(x)
    branches = [layers.Conv2D(4, k, padding="same", activation="relu")(x) for k in (1, 3, 5)]
    x = layers.Concatenate()([*branches, layers.Conv2D(4, 1)(pooled)])
    x = layers.Dropout(0.4)(layers.BatchNormalization()(x))
    outputs = layers.Dense(3)(layers.GlobalAveragePooling2D()(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _keras_case(keras.Model(inputs, outputs), loss, _images(), ["accuracy"])


def _lstm(unroll):
    import keras
    from keras import layers

    hidden = layers.LSTM(5, return_sequences=True, unroll=unroll, dropout=0.2)
    model = keras.Sequential([keras.Input((6, 4)), hidden, layers.LSTM(4, unroll=unroll), layers.Dense(1)])
    batches = [(RNG.random((8, 6, 4), np.float32), RNG.random((8, 1), np.float32)) for _ in range(STEPS)]
    return _keras_case(model, "mse", batches, ["mae"])


def lstm_while():
    return _lstm(unroll=False)


def lstm_unrolled():
    return _lstm(unroll=True)


def transformer():
    import keras
    from keras import layers

    inputs = keras.Input((7,), dtype="int32")
    x = layers.Embedding(20, 8)(inputs)
    attended = layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x)
    x = layers.LayerNormalization()(x + attended)
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x)))
    model = keras.Model(inputs, layers.Dense(20)(x))
    tokens = [RNG.integers(20, size=(4, 7)).astype(np.int32) for _ in range(STEPS)]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _keras_case(model, loss, [(t, np.roll(t, -1, axis=1)) for t in tokens])


def nested_inputs():
    import keras
    from keras import layers

    tower = keras.Sequential([keras.Input((5,)), layers.Dense(6, activation="relu"), layers.BatchNormalization()])
    left, right = keras.Input((5,), name="left"), keras.Input((5,), name="right")
    joined = layers.Dropout(0.3)(layers.Concatenate()([tower(left), tower(right)]))
    heads = {"score": layers.Dense(1, name="score")(joined), "kind": layers.Dense(3, name="kind")(joined)}
    model = keras.Model({"left": left, "right": right}, heads)
    loss = {"score": "mse", "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    batches = [
        (
            {name: RNG.random((8, 5), np.float32) for name in ("left", "right")},
            {"score": RNG.random((8, 1), np.float32), "kind": RNG.integers(3, size=8).astype(np.int32)},
        )
        for _ in range(STEPS)
    ]
    return _keras_case(model, loss, batches)


def custom_train_step():
    import keras

    class Penalised(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)
            self.drop = keras.layers.Dropout(0.2)
            self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")

        def call(self, x, training=False):
            return self.out(self.drop(self.hidden(x), training=training))

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                error = tf.reduce_mean(tf.square(self(x, training=True) - y))
                loss = error + 0.01 * tf.add_n([tf.nn.l2_loss(w.value) for w in self.trainable_variables])
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            self.steps.assign_add(1.0)
            return {"loss": loss, "error": error, "steps": self.steps.value}

    model = Penalised()
    batches = [(RNG.random((8, 5), np.float32), RNG.random((8, 1), np.float32)) for _ in range(STEPS)]
    model(batches[0][0])
    return _keras_case(model, None, batches)


def tf_keras_cnn():
    import tf_keras
    from tf_keras import layers

    model = tf_keras.Sequential(
        [
            layers.Input((12, 12, 3)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(3),
        ]
    )
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf_keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["accuracy"])
    return model, _images()


def sonnet_mlp():
    import sonnet as snt

    net = snt.Sequential([snt.nets.MLP([8, 8, 1], dropout_rate=None)])
    optimizer = snt.optimizers.Adam(0.01)
    generator = tf.random.Generator.from_seed(3)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            noise = generator.normal(tf.shape(x), stddev=0.1)
            loss = tf.reduce_mean(tf.square(net(x + noise) - y))
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply(gradients, net.trainable_variables)
        return loss

    batches = [(RNG.random((8, 5), np.float32), RNG.random((8, 1), np.float32)) for _ in range(STEPS)]
    net(batches[0][0])
    optimizer.apply([tf.zeros_like(v) for v in net.trainable_variables], net.trainable_variables)
    return train_step, batches


CASES = {
    f.__name__: f
    for f in (
        inception_like,
        lstm_while,
        lstm_unrolled,
        transformer,
        nested_inputs,
        custom_train_step,
        tf_keras_cnn,
        sonnet_mlp,
    )
}


def build(name):
    """The case, with every seed as it always is."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
    import keras
    import tf_keras

    keras.utils.set_random_seed(1)
    tf_keras.utils.set_random_seed(1)
    return CASES[name]()
