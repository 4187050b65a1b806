"""What one step is given: arrays or specs, as `tf.TensorSpec`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.errors import SourceError


def as_specs(batch: Any, *, float_dtype: str | None = None) -> Any:
    """The same structure with a spec for each array, tensor or spec; nothing is run.

    Python numbers, booleans and texts stay as they are: to a `tf.function` they are constants.

    Args:
      batch: nested tuples, lists and dicts of arrays, tensors (sparse and ragged ones too), their specs or Keras
        tensors; None stays None.
      float_dtype: dtype that floats of NumPy and of other arrays than TensorFlow's are given, as Keras does; None keeps
        theirs.

    Raises:
      SourceError: a leaf that is none of these.
    """
    return tf.nest.map_structure(lambda leaf: _spec(leaf, float_dtype), batch)


def _spec(leaf: Any, float_dtype: str | None) -> Any:
    if leaf is None or isinstance(leaf, tf.TypeSpec | bool | int | float | str):
        return leaf
    if isinstance(leaf, tf.data.Dataset):
        raise SourceError(
            "a dataset as the batch of a step", "one batch", "Pass dataset.element_spec, or next(iter(dataset))."
        )
    if isinstance(leaf, tf.Tensor | tf.Variable):
        return tf.TensorSpec(leaf.shape, leaf.dtype)
    if _is_composite(leaf):
        return tf.type_spec_from_value(leaf)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.ndarray | np.generic):
        symbolic = type(leaf).__name__ == "KerasTensor"  # of either Keras; it has no value that a model would be given
        return tf.TensorSpec(leaf.shape, _cast(tf.as_dtype(leaf.dtype), None if symbolic else float_dtype))
    if isinstance(leaf, np.ndarray | np.generic):
        array = np.asarray(leaf)
        if array.dtype == object and array.size and all(isinstance(item, str | bytes) for item in array.flat):
            return tf.TensorSpec(array.shape, tf.string)
        if array.dtype == object:
            raise SourceError("a batch with an array of Python objects", "arrays of numbers or strings")
        return tf.TensorSpec(array.shape, _cast(tf.as_dtype(array.dtype), float_dtype))
    raise SourceError(
        f"a batch with {type(leaf).__name__} {str(leaf)[:40]!r}",
        "arrays, tensors or tf.TensorSpecs in tuples, lists, dicts",
    )


def _cast(dtype: tf.DType, float_dtype: str | None) -> tf.DType:
    return tf.as_dtype(float_dtype) if float_dtype is not None and dtype.is_floating else dtype


def _is_composite(leaf: Any) -> bool:
    """Whether a value or spec is made of several tensors, as sparse and ragged ones are."""
    return all(part is not leaf for part in tf.nest.flatten(leaf, expand_composites=True))


def as_arguments(batch: Any) -> tuple[Any, ...]:
    """A batch as arguments of a function: a tuple is the arguments, anything else the only one."""
    if batch is None:
        return ()
    return batch if isinstance(batch, tuple) else (batch,)


def without_numbers(batch: Any) -> Any:
    """The same batch with arrays for Python numbers, booleans and texts: what takes tensors only knows no constants."""
    return tf.nest.map_structure(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, bool | int | float | str) else leaf, batch
    )


def flat_shapes(batch: Any) -> list[tuple[int, ...] | None]:
    """Concrete shapes of a traced function's arguments, in their order; None where a dimension is open.

    Args:
      batch: arrays, tensors or specs, as for `as_specs`; a sparse or ragged one stands for the several tensors that it
        is made of, whose sizes only a value tells.
    """
    shapes: list[tuple[int, ...] | None] = []
    for leaf in tf.nest.flatten(batch, expand_composites=True):
        if leaf is None or isinstance(leaf, bool | int | float | str):
            continue
        shape = tf.TensorShape(getattr(leaf, "shape", None))
        shapes.append(tuple(shape.as_list()) if shape.is_fully_defined() else None)
    return shapes


def check_shape(name: str, given: Any, declared: tf.TensorShape) -> None:
    """Refuses a shape that an input cannot have.

    Args:
      name: of the input.
      given: its shape by the batch; None if that tells none.
      declared: its shape by the program.

    Raises:
      SourceError: it cannot.
    """
    if given is not None and not declared.is_compatible_with(given):
        raise SourceError(
            f"a batch with shape {tuple(given)} for input {name!r}",
            f"shape {tuple(declared)}, as when the program was made",
            "A batch can only fill unknown dimensions (None).",
        )


def shapes_by_name(names: Sequence[str], shapes: Sequence[tuple[int, ...] | None]) -> dict[str, tuple[int, ...]]:
    """Argument op -> concrete shape, for those that have one.

    Args:
      names: of the argument ops, in order.
      shapes: theirs; empty if no batch was given.

    Raises:
      SourceError: not one for each.
    """
    if shapes and len(shapes) != len(names):
        raise SourceError(
            f"a batch of {len(shapes)} tensors",
            f"one tensor for each of the {len(names)} inputs: {', '.join(names) or 'none'}",
        )
    return {name: shape for name, shape in zip(names, shapes, strict=bool(shapes)) if shape is not None}


def made_up(dtype: tf.DType, shape: Sequence[int], rng: np.random.Generator) -> Any:
    """An array to run a step with whose values do not matter: normal floats, integers 0 and 1, empty texts."""
    if dtype == tf.string:
        return np.full(shape, b"", object)
    if dtype.is_floating or dtype.is_complex:
        return rng.standard_normal(shape).astype(dtype.as_numpy_dtype)
    return rng.integers(2, size=shape).astype(dtype.as_numpy_dtype)
