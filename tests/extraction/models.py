"""Small models of every source kind, built afresh for each test."""

from __future__ import annotations

import numpy as np


def keras_cnn(package: str = "keras", *, dropout: float = 0.5):
    import importlib

    keras = importlib.import_module(package)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)) if package == "keras" else layers.InputLayer((8, 8, 3)),
            layers.Conv2D(4, 3, name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(dropout, seed=3, name="drop"),
            layers.Flatten(),
            layers.Dense(5, name="head"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"], jit_compile=False)
    return model


def cnn_batch(size: int = 4):
    rng = np.random.default_rng(0)
    return rng.normal(size=(size, 8, 8, 3)).astype("float32"), rng.integers(0, 5, size).astype("int32")


def keras_lstm(steps: int = 7, *, unroll: bool = False):
    import keras

    model = keras.Sequential(
        [
            keras.Input((steps,), dtype="int32"),
            keras.layers.Embedding(11, 6),
            keras.layers.LSTM(5, return_sequences=True, unroll=unroll),
            keras.layers.Dense(11),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    return model


def sonnet_step():
    import sonnet as snt
    import tensorflow as tf

    net = snt.nets.MLP([6, 3])
    optimizer = snt.optimizers.Momentum(0.1, 0.9)
    net(tf.zeros([1, 4]))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(x) - y))
        variables = net.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return net, step


def tf1_graph():
    """A TF1 training graph with reference variables and a v1 while loop, as `export_meta_graph` wrote them."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        was_v2 = v1.control_flow_v2_enabled()
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [None, 4], name="x")
            w = v1.get_variable("w", [4, 3], use_resource=False)
            h = v1.while_loop(lambda i, _: i < 5, lambda i, h: (i + 1, tf.tanh(h)), [0, tf.matmul(x, w)])[1]
            loss = tf.reduce_mean(tf.square(h), name="loss")
            train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
        finally:
            if was_v2:
                v1.enable_control_flow_v2()
        graph.add_to_collection("train_op", train)
        v1.global_variables_initializer()
        v1.train.Saver()
        return v1.train.export_meta_graph()


def tf1_saved_model(path, *, use_resource: bool):
    """A TF1 SavedModel of relu(x @ w), w all 2."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        w = v1.get_variable("w", [4, 3], use_resource=use_resource, initializer=v1.constant_initializer(2.0))
        y = tf.nn.relu(tf.matmul(x, w))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y})
    return path
