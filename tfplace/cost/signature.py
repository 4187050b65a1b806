"""The signature of an op: what decides how long one execution takes. Ops of one signature do the same work."""

from __future__ import annotations

from collections.abc import Iterable

from tfplace.core.buffers import reads_that_copy
from tfplace.core.graph import AttrValue, OpGraph, Shape

IGNORED_ATTRS = frozenset(
    {"allowed_devices", "container", "debug_name", "frame_name", "is_constant", "parallel_iterations"}
    | {"seed", "seed2", "shared_name", "tensor_name", "user_specified_name"}
)
"""Attributes that name things or seed generators: no kernel takes longer for them."""


def signature(graph: OpGraph, v: int) -> str:
    """Type, attributes, and dtypes and shapes of inputs and outputs, as one line of text.

    Values are not part of it: two sums over different axes of a square matrix count as the same work. Shapes that were
    unknown enter as they were counted.

    Args:
      graph: its graph.
      v: op index.

    Returns:
      Such as "MatMul(float32[8,4], float32[4,2]) -> (float32[8,2]) {T=float32, transpose_a=False, ...}".
    """
    inputs = _tensors(graph, graph.inputs[v])
    outputs = _tensors(graph, range(graph.op_tensors[v], graph.op_tensors[v + 1]))
    attrs = graph.op_attrs[v]
    shown = ", ".join(f"{key}={_value(attrs[key])}" for key in sorted(attrs) if key not in IGNORED_ATTRS)
    inside = "".join(f" of {b.runs:g} x {b.graph.fingerprint}" for b in graph.bodies if b.op == v and b.graph)
    return f"{graph.op_types[v]}({inputs}) -> ({outputs}) {{{shown}}}{inside}"


def signatures(graph: OpGraph) -> tuple[str, ...]:
    """[V] the signature of every op; that of a read says if it copies, as rows of the variable are written."""
    copied = reads_that_copy(graph)
    return tuple(signature(graph, v) + (" copied" if v in copied else "") for v in range(graph.num_ops))


def _tensors(graph: OpGraph, tensors: Iterable[int]) -> str:
    return ", ".join(graph.tensor_dtype[t] + _shape(graph.tensor_shape[t]) for t in tensors)


def _shape(shape: Shape) -> str:
    return "[?]" if shape is None else f"[{','.join(map(str, shape))}]"


def _value(value: AttrValue) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
