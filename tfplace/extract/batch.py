"""What one step is given: arrays or specs, as `tf.TensorSpec`s."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.errors import SourceError


def as_specs(batch: Any, *, float_dtype: str | None = None) -> Any:
    """The same structure with a `tf.TensorSpec` for each array, tensor or spec; nothing is run.

    Python numbers, booleans and texts stay as they are: to a `tf.function` they are constants.

    Args:
      batch: nested tuples, lists and dicts of arrays, tensors, `tf.TensorSpec`s or Keras tensors; None stays None.
      float_dtype: dtype that 64-bit NumPy floats are given, as Keras does; None keeps them.

    Raises:
      SourceError: a leaf that is none of these.
    """
    return tf.nest.map_structure(lambda leaf: _spec(leaf, float_dtype), batch)


def _spec(leaf: Any, float_dtype: str | None) -> Any:
    if leaf is None or isinstance(leaf, tf.TypeSpec | bool | int | float | str):
        return leaf
    if isinstance(leaf, tf.Tensor | tf.Variable):
        return tf.TensorSpec(leaf.shape, leaf.dtype)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.ndarray | np.generic):
        return tf.TensorSpec(leaf.shape, tf.as_dtype(leaf.dtype))  # KerasTensor and other array types
    if isinstance(leaf, np.ndarray | np.generic):
        array = np.asarray(leaf)
        if array.dtype == object:
            raise SourceError("a batch with an array of Python objects", "arrays of numbers or texts")
        wide = float_dtype is not None and array.dtype == np.float64
        return tf.TensorSpec(array.shape, tf.as_dtype(float_dtype) if wide else tf.as_dtype(array.dtype))
    raise SourceError(
        f"a batch with {type(leaf).__name__} {str(leaf)[:40]!r}",
        "arrays, tensors or tf.TensorSpecs in tuples, lists, dicts",
    )


def flat_shapes(batch: Any) -> list[tuple[int, ...] | None]:
    """Concrete shapes of the flat leaves of `as_specs(batch)`; None where a dimension is open."""
    shapes: list[tuple[int, ...] | None] = []
    for spec in tf.nest.flatten(batch):
        if not isinstance(spec, tf.TypeSpec):
            continue
        shape = tf.TensorShape(getattr(spec, "shape", None))
        shapes.append(tuple(shape.as_list()) if shape.is_fully_defined() else None)
    return shapes
