"""A step of any batch size, from its graphs for two sizes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tfplace.core.graph import OpGraph, Shape


def at_batch(first: OpGraph, second: OpGraph, examples: int) -> OpGraph | None:
    """The graph of a step with another number of examples; None where the two are not the same ops.

    Sizes of tensors that differ are taken to be linear in the batch, as when a step is split. It has no program to run.

    Args:
      first: the step in one slice.
      second: the same with another number of examples.
      examples: of the step wanted.
    """
    if first.slices is None or second.slices is None or not _alike(first, second):
        return None
    (a,), (b,) = first.slices.sizes, second.slices.sizes
    if a == b:
        return None
    part = (examples - a) / (b - a)
    shapes = tuple(_shape(x, y, part) for x, y in zip(first.tensor_shape, second.tensor_shape, strict=True))
    size_bytes = np.rint(first.tensor_bytes + part * (second.tensor_bytes - first.tensor_bytes)).astype(np.int64)
    for t, (shape, old) in enumerate(zip(shapes, first.tensor_shape, strict=True)):
        if shape is not None and old is not None and shape != old and (elements := math.prod(old)):
            size_bytes[t] = first.tensor_bytes[t] * math.prod(shape) // elements
    return replace(
        first,
        tensor_shape=shapes,
        tensor_bytes=np.maximum(size_bytes, 0),
        trips=np.maximum(first.trips + part * (second.trips - first.trips), 0.0),
        slices=replace(first.slices, sizes=(examples,)),
        origin=None,
    )


def _alike(first: OpGraph, second: OpGraph) -> bool:
    """Whether two graphs have the same ops and edges, and tensors of as many axes; each trace has names of its own."""
    edges = ("edge_src", "edge_dst", "edge_tensor", "edge_slot", "tensor_op", "replicable")
    return (
        first.op_types == second.op_types
        and all(np.array_equal(getattr(first, name), getattr(second, name)) for name in edges)
        and first.slices is not None
        and second.slices is not None
        and len(first.slices.sizes) == len(second.slices.sizes) == 1
        and all(_axes(x) == _axes(y) for x, y in zip(first.tensor_shape, second.tensor_shape, strict=True))
    )


def _axes(shape: Shape) -> int:
    return -1 if shape is None else len(shape)


def _shape(first: Shape, second: Shape, part: float) -> Shape:
    if first is None or second is None or first == second:
        return first
    return tuple(max(round(x + part * (y - x)), 0) for x, y in zip(first, second, strict=True))
