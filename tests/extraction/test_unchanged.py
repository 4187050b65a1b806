"""Extraction changes nothing in the model."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tensorflow as tf

import tfplace
from tests.extraction import models


def state(model):
    return {
        "weights": [np.array(w) for w in model.get_weights()],
        "iterations": int(model.optimizer.iterations),
        "trainable": [v.name for v in model.trainable_variables],
        "non_trainable": [v.name for v in model.non_trainable_variables],
        # metrics not yet made count as empty: reading a graph may make them, but must not fill them
        "metrics": sum(float(m.result()) for m in model.metrics if m.name != "compile_metrics"),
        "functions": (model.train_function, model.test_function, model.predict_function),
        "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002 (the legacy generator is what may be touched)
        "python": random.getstate(),
        "tensorflow": tf.random.get_global_generator().state.numpy().tolist(),
        "seeds": [v.numpy().tolist() for v in model.variables if "seed" in v.name],
    }


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_extracting_before_training_changes_nothing(package):
    model = models.keras_cnn(package)
    before = state(model)
    for training in (True, False):
        tfplace.extract(model, models.cnn_batch() if training else models.cnn_batch()[0], training=training)
    after = state(model)
    for a, b in zip(before.pop("weights"), after.pop("weights"), strict=True):
        np.testing.assert_array_equal(a, b)
    assert before == after


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_training_goes_on_as_if_never_extracted(package):
    losses = []
    for extracted in (False, True):
        tf.random.set_seed(1)
        np.random.seed(1)  # noqa: NPY002 (Keras draws from the legacy generator)
        # tf_keras's dropout counts its draws in the kernel, which every new trace starts anew: not the model's state
        model = models.keras_cnn(package, dropout=0.5 if package == "keras" else 0.0)
        for i, w in enumerate(model.weights):
            if w.dtype in ("float32", tf.float32):
                w.assign(np.random.default_rng(i).uniform(0.1, 0.3, w.shape).astype("float32"))
        x, y = models.cnn_batch(16)
        run = []
        for step in range(4):
            if extracted and step in (0, 2):
                tfplace.extract(model, (x, y))
            run.append(model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0).history["loss"][0])
        losses.append(run)
    assert losses[0] == losses[1]
