"""Values of constants. One number may stand for all elements: a mask of ones may be a gigabyte at length."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray


def constant_value(node: Any) -> NDArray[Any]:
    """The value of a constant's `NodeDef`, not to be changed; a view of one number where that is all it holds.

    A constant that holds no number is all zeros.
    """
    tensor = node.attr["value"].tensor
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    numbers = sum(len(value) for field, value in tensor.ListFields() if field.name.endswith("_val"))
    of_text = tensor.dtype == tf.string.as_datatype_enum
    if of_text or tensor.tensor_content or numbers > 1 or np.prod(shape, dtype=np.int64) <= 1:
        return np.asarray(tf.make_ndarray(tensor))
    one = type(tensor)()
    one.CopyFrom(tensor)
    one.tensor_shape.Clear()
    return np.broadcast_to(tf.make_ndarray(one), shape)


def set_constant(node: Any, value: NDArray[Any]) -> None:
    """Gives a constant another value of its type, a view of one number as that number."""
    kind, tensor = node.attr["dtype"].type, node.attr["value"].tensor
    if is_one_number(value):
        tensor.CopyFrom(tf.make_tensor_proto(value[(0,) * value.ndim], kind, value.shape))
    elif value.dtype == np.bool_:  # `make_tensor_proto` writes Booleans one by one: minutes for masks of attention
        tensor.Clear()
        tensor.dtype = kind
        tensor.tensor_shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
        tensor.tensor_content = np.ascontiguousarray(value).tobytes()
    else:
        tensor.CopyFrom(tf.make_tensor_proto(value, kind, value.shape))


def is_one_number(value: NDArray[Any]) -> bool:
    """Whether an array is a view of one number for more than one element."""
    return value.size > 1 and not any(value.strides)


def distinct(value: NDArray[Any]) -> NDArray[Any]:
    """The array, or of a view of one number that number, in as many dimensions."""
    return value[(slice(0, 1),) * value.ndim] if is_one_number(value) else value
