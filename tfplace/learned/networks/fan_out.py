"""A tensor that is read several times, with one gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import tensorflow as tf

_GRADIENT = "TfplaceFanOut"


@tf.function(autograph=False)
def fan_out(x: tf.Tensor, count: int) -> Sequence[tf.Tensor]:
    """`count` times x, to be read once each.

    Gradients of what is read three times and more are added in an order of their own at each run, if more than one core
    computes them: TensorFlow's AddN begins with whichever of them has a buffer that nobody else reads any more. Here
    they are added in the order of the list.
    """
    # only gradients of a whole function, not those of a tape within it, are the registered ones
    with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": _GRADIENT}):
        read: Sequence[tf.Tensor] = tf.identity_n([x] * count)
    return read


def _gradient(op: tf.Operation, *by_read: tf.Tensor) -> list[tf.Tensor | None]:
    # not a tree of additions, which Grappler would join to an AddN again
    return [tf.reduce_sum(tf.stack(by_read), axis=0)] + [None] * (len(op.inputs) - 1)


with contextlib.suppress(KeyError):  # when the module is loaded once more, as notebooks may
    tf.RegisterGradient(_GRADIENT)(_gradient)
