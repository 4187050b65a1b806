"""Pairwise products of features, and tables that take no memory until used. Loads Keras: import when building."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from keras import layers

_ALIGNMENT = 64  # bytes; TensorFlow copies what is not aligned


class Interaction(layers.Layer):
    """The first of F vectors, followed by the dot products of all pairs of different vectors.

    Naumov et al. 2019, section 2.1.4. Pairs (i, j) with j < i are in the order (1, 0), (2, 0), (2, 1), (3, 0), ...
    """

    def call(self, vectors: list[Any]) -> Any:
        """[B, width + F (F - 1) / 2] from F vectors [B, width]."""
        count = len(vectors)
        stacked = tf.stack(vectors, axis=1)
        products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), (-1, count * count))
        rows, columns = np.tril_indices(count, -1)
        return tf.concat([vectors[0], tf.gather(products, (rows * count + columns).astype(np.int32), axis=1)], axis=1)


def zeros(shape: tuple[int, ...], dtype: Any = None) -> Any:
    """Zeros on pages that the system hands out when they are first written to: 10 GB of them are made at once.

    The first step that updates the variable copies it into memory of TensorFlow's own.
    """
    dtype = tf.as_dtype(dtype or "float32").as_numpy_dtype
    raw = np.zeros(math.prod(shape) * np.dtype(dtype).itemsize + _ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT
    aligned = raw[begin : begin + len(raw) - _ALIGNMENT].view(dtype).reshape(shape)
    return tf.experimental.dlpack.from_dlpack(aligned.__dlpack__())
