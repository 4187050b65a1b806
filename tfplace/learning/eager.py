"""Where networks can be used."""

from __future__ import annotations

import tensorflow as tf

from tfplace.errors import InputError


def need_eager() -> None:
    """Checks that TensorFlow runs what it is told: networks give numbers to searches, and are not parts of graphs.

    Raises:
      InputError: a graph is being built, or eager execution is disabled.
    """
    if not tf.executing_eagerly():
        raise InputError(
            "a placer that learns, in a tf.Graph or tf.function, or with eager execution disabled",
            "eager execution",
            "Place outside of the graph; or by `auto`, which needs none.",
        )
