"""Placers that learn, in `fit`: they use TensorFlow themselves, beside the model that they place."""

from __future__ import annotations

import numpy as np

from tests.keras.fitting import X, assert_same, assert_same_weights, callback, fit, make_model


def test_fit_is_the_same_though_the_placer_learns():
    plain, placed = make_model("keras"), make_model("keras")
    call = callback(placer="seq2seq", budget=40)
    assert_same(fit(plain), fit(placed, call))
    assert_same_weights(plain, placed)
    assert call.placement.placer == "seq2seq (40 evaluations)"
    np.testing.assert_allclose(placed.predict(X, verbose=0), plain.predict(X, verbose=0), rtol=2e-3, atol=2e-3)
