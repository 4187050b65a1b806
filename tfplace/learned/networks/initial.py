"""First weights of networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_TAIL = 2.0
"""Normal numbers beyond so many deviations are drawn again."""


def draw_weights(variables: Sequence[tf.Variable], rng: np.random.Generator) -> None:
    """Draws every matrix from a truncated normal distribution of deviation 1 / sqrt(rows), Sonnet's; leaves vectors.

    TensorFlow's own generators are not touched: they belong to the user's model, and what it draws is not to depend on
    whether it was placed.
    """
    for variable in variables:
        if variable.shape.rank != 2:
            continue
        drawn = rng.standard_normal(variable.shape)
        while (beyond := np.abs(drawn) > _TAIL).any():
            drawn[beyond] = rng.standard_normal(int(beyond.sum()))
        variable.assign(drawn * variable.shape[0] ** -0.5)
