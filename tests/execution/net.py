"""A small network with a training step, for tests of placed programs."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

DEVICES = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.reshape(tf.range(6, dtype=tf.float32), (3, 2)) / 10, name="w")
        self.b = tf.Variable([0.5, -0.5], name="b")
        self.calls = tf.Variable(0, dtype=tf.int64, name="calls")
        self.train = tf.function(self._train)
        self.predict = tf.function(lambda x: x @ self.w + self.b)

    def _train(self, x, rate=0.1):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ self.w + self.b - 1.0))
        for variable, gradient in zip((self.w, self.b), tape.gradient(loss, (self.w, self.b)), strict=True):
            variable.assign_sub(rate * gradient)
        self.calls.assign_add(1)
        return {"loss": loss, "calls": self.calls.read_value()}


X = np.random.default_rng(0).random((4, 3), np.float32)
