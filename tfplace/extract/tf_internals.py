"""Every private TensorFlow name that tfplace uses, with the reason why no public name serves."""

from __future__ import annotations

from functools import cache
from typing import Any

from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import op_def_registry as _op_def_registry


@cache
def op_def(op_type: str) -> Any:
    """The `OpDef` of a registered op type, or None. `tf.raw_ops` has the functions but not the definitions."""
    return _op_def_registry.get(op_type)


@cache
def registered_kernels(op_type: str) -> tuple[Any, ...]:
    """The `KernelDef`s of an op type, GPU ones included where the build has them; there is no public listing."""
    return tuple(_kernels.get_registered_kernels_for_op(op_type).kernel)
