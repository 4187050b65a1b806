"""Where networks that place run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfplace.errors import InputError


@contextlib.contextmanager
def on_host() -> Iterator[None]:
    """Runs what is inside on the CPU, also where there are GPUs.

    Those may be busy with what is placed; they round otherwise (to TF32 by default) and add in any order, so that equal
    seeds would not give equal placements; and these networks are small.

    Raises:
      InputError: a graph is being built, or eager execution is disabled. Networks give numbers to searches, and are not
        parts of graphs.
    """
    if not tf.executing_eagerly():
        raise InputError(
            "a placer that learns, in a tf.Graph or tf.function, or with eager execution disabled",
            "eager execution",
            "Place outside of the graph, or with `auto`, which works without it.",
        )
    with tf.device("CPU:0"):
        yield
