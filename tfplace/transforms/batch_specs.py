"""The specs of a batch with another number of examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfplace.errors import SplitError

Axes = int | Mapping[int, int | None]
"""The batch axis of all inputs; or input, by its number -> its batch axis, None for one that all slices get whole."""


def batch_size(specs: Any, axes: Axes = 0) -> int:
    """Examples in a batch: the size of the first input's batch axis.

    Raises:
      SplitError: it is not known, or the axes are none, or those of inputs that there are not.
    """
    _check_axes(axes, len(_leaves(specs)))
    for number, spec in enumerate(_leaves(specs)):
        axis, shape = _axis(axes, number), getattr(spec, "shape", None)
        if axis is not None and shape is not None and shape.rank:
            size = shape[axis] if axis < shape.rank else None
            if size is not None:
                return int(size)
    raise SplitError("a batch of unknown size", "arrays or specs whose batch axis has a size")


def resized(specs: Any, old: int, new: int, axes: Axes = 0) -> Any:
    """The same structure of specs with `new` examples in place of `old`.

    Raises:
      SplitError: an input has no axis of `old` examples where it should; names it.
    """
    number, keys = -1, _keys(specs)

    def change(spec: Any) -> Any:
        nonlocal number
        number += 1
        axis = _axis(axes, number)
        if axis is None or not isinstance(spec, tf.TypeSpec):
            return spec
        shape = getattr(spec, "shape", None)
        if shape is None or shape.rank is None or axis >= shape.rank or shape[axis] != old:
            named = f"input {number} ({keys[number]!r})" if keys[number] else f"input {number}"
            raise SplitError(
                f"{named} of shape {tuple(shape) if shape is not None and shape.rank is not None else shape}",
                f"{old} examples along axis {axis}",
                f"Set batch_axis={{{number}: AXIS}}, or {{{number}: None}} to give every slice all of it.",
            )
        return _with_shape(spec, number, [*shape[:axis], new, *shape[axis + 1 :]])

    return tf.nest.map_structure(change, specs)


def _keys(specs: Any, inside: str = "") -> list[str]:
    """For each input the key of the dictionary that it is in; empty for those in none."""
    if isinstance(specs, Mapping):  # TensorFlow flattens dictionaries by their sorted keys
        return [key for name in sorted(specs) for key in _keys(specs[name], str(name))]
    if isinstance(specs, tuple | list):
        return [key for one in specs for key in _keys(one, inside)]
    return [inside] * len(_leaves(specs))


def _check_axes(axes: Any, inputs: int) -> None:
    given = dict(axes) if isinstance(axes, Mapping) else {0: axes}
    numbers = all(isinstance(n, int) and 0 <= n < max(inputs, 1) for n in given)
    whole = {axis for axis in given.values() if axis is not None or not isinstance(axes, Mapping)}
    if not numbers or any(not isinstance(axis, int) or isinstance(axis, bool) or axis < 0 for axis in whole):
        raise SplitError(
            f"batch_axis={axes!r} for {inputs} inputs",
            "an axis of at least 0, or a dict: number of an input, counted from 0 -> axis or None",
        )


def _with_shape(spec: Any, number: int, shape: list[int | None]) -> Any:
    if isinstance(spec, tf.TensorSpec):
        return tf.TensorSpec(shape, spec.dtype, spec.name)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensorSpec(shape, spec.dtype)
    raise SplitError(f"input {number} of type {type(spec).__name__}", "dense, sparse or ragged tensors")


def _axis(axes: Axes, number: int) -> int | None:
    return axes if isinstance(axes, int) else axes.get(number, 0)


def _leaves(specs: Any) -> list[Any]:
    return list(tf.nest.flatten(specs))
