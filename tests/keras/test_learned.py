"""Placers that learn, in `fit`: they use TensorFlow themselves, beside the model that they place."""

from __future__ import annotations

import numpy as np
import pytest

from tests.keras.fitting import X, assert_same, assert_same_weights, both, callback, fit, make_model


@both
@pytest.mark.parametrize("placer", ["post", "seq2seq", "hierarchical"])
def test_fit_is_the_same_though_the_placer_learns(package, placer):
    plain, placed = make_model(package), make_model(package)
    call = callback(placer=placer, budget=40)
    assert_same(fit(plain), fit(placed, call))
    assert_same_weights(plain, placed)
    assert call.placement.placer == f"{placer} (40 evaluations)"
    np.testing.assert_allclose(placed.predict(X, verbose=0), plain.predict(X, verbose=0), rtol=2e-3, atol=2e-3)
