"""Runs a split step beside the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.extraction.function import argument_ops, captures
from tfplace.transforms.split import split_source

SLICES = (2, 3, [3, 1, 2])
"""Of a batch of 6: two and three equal slices, and unequal ones of which one has a single example."""

TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "complex128": 1e-12, "complex64": 2e-5, "float16": 1e-2}
"""Dtype -> largest difference, relative to the largest element: sums in another order. All other dtypes are equal."""


def split_outputs(
    function: Any, arguments: Sequence[Any], slices: int | Sequence[int], axes: dict[int, int | None], **options: Any
) -> tuple[OpGraph, list[Any]]:
    """A `tf.function`'s split graph and the flat outputs that it computes.

    Args:
      function: without state.
      arguments: its tensors as arrays.
      slices: as `split_source` takes them.
      axes: batch axis of each argument.
      **options: of `split_source`.
    """
    graph = split_source(function, tuple(arguments), slices, batch_axis=axes, **options)
    return graph, run(graph, arguments)


def run(graph: OpGraph, arguments: Sequence[Any]) -> list[Any]:
    """Flat outputs of a graph, as arrays."""
    flat = graph.origin.flat  # type: ignore[union-attr]

    given = dict(zip(argument_ops(flat), arguments, strict=True)) | {op: t.numpy() for t, op in captures(flat)}
    with tf.Graph().as_default() as imported:
        tf.graph_util.import_graph_def(flat.graph_def, name="")
    with tf.compat.v1.Session(graph=imported) as session:
        found = session.run([*flat.output_names], {f"{op}:0": value for op, value in given.items()})
    return [np.asarray(out) for out in found]


def difference(a: Any, b: Any) -> str:
    """Why two arrays are not the same up to the order of sums; empty if they are."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape} became {b.dtype}{b.shape}"
    if a.dtype.name not in TOLERANCES:
        return "" if np.array_equal(a, b) else f"{a.tolist()} became {b.tolist()}"
    both = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~both], b[~both], equal_nan=True):
        return "infinite or undefined elsewhere"
    scale = float(np.abs(a[both]).max(initial=1e-3))
    far = float(np.abs(a[both] - b[both]).max(initial=0)) / scale
    return "" if far <= TOLERANCES[a.dtype.name] else f"{far:.1e} of the largest element apart"


def copies(graph: OpGraph, original: str) -> int:
    """How many ops of a split graph are a slice's copy of an op."""
    assert graph.slices is not None
    return sum(k >= 0 and o == original for k, o in zip(graph.slices.slice_of, graph.slices.original, strict=True))
