"""Grappler's view of a graph: static shapes, dtypes and values known before any run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.grappler import item as grappler_item

from grappler_bridge.errors import grappler_errors
from grappler_bridge.metagraph import fetching


@dataclass(frozen=True)
class TensorProperties:
    """What is known of one output.

    Attributes:
      dtype: `tf.DType`.
      shape: None for unknown rank, -1 for an unknown dimension.
      value: elements of a small integer tensor whose value is known, else None.
      symbols: the shape with a negative number for each unknown dimension, the same for those known to be equal.
    """

    dtype: Any
    shape: tuple[int, ...] | None
    value: tuple[int, ...] | None
    symbols: tuple[int, ...] | None = None


def grappler_item_of(meta: Any) -> Any:
    """Grappler's `Item` of a MetaGraphDef that was checked (`grappler_bridge.check`), devices as annotated.

    Placeholders need no care here: when it costs a graph, Grappler takes their shapes at their word.

    Raises:
      GrapplerError: Grappler cannot read it.
    """
    with grappler_errors("read the graph"):
        return grappler_item.Item(meta)


def infer_properties(graph_def: Any, fetches: Sequence[str]) -> dict[str, list[TensorProperties]]:
    """Static properties of every op's outputs, by Grappler's symbolic shape inference (it folds constants on the way).

    Grappler takes a placeholder's shape for a mere hint, since anything may be fed; here a placeholder with a shape is
    taken at its word.

    Args:
      graph_def: a flat graph. Captured variables should be `VarHandleOp`s, whose shape tells their readers'.
      fetches: ops to keep; Grappler refuses an item without any.

    Raises:
      GrapplerInputError: as `fetching`.
      GrapplerError: Grappler gave up.
    """
    meta = fetching(graph_def, fetches)
    _trust_placeholders(meta.graph_def)
    item = grappler_item_of(meta)
    with grappler_errors("infer shapes"):
        found = item.GetOpProperties()
    return {op: [_properties(p) for p in outputs] for op, outputs in found.items()}


def _trust_placeholders(graph_def: Any) -> None:
    """Turns placeholders of known shape into reads of variables of that shape, whose shape is no hint."""
    for node in list(graph_def.node):
        if node.op != "Placeholder" or node.attr["shape"].shape.unknown_rank:
            continue
        dtype, shape = node.attr["dtype"].type, node.attr["shape"].shape
        if tf.dtypes.as_dtype(dtype) in (tf.resource, tf.variant):
            continue
        handle = graph_def.node.add()
        handle.name, handle.op = f"{node.name}/tfplace_fed", "VarHandleOp"
        handle.attr["dtype"].type = dtype
        handle.attr["shape"].shape.CopyFrom(shape)
        handle.attr["shared_name"].s = handle.name.encode()
        node.op = "ReadVariableOp"
        node.attr.clear()
        node.attr["dtype"].type = dtype
        node.input.insert(0, handle.name)


def _properties(proto: Any) -> TensorProperties:
    dtype = tf.dtypes.as_dtype(proto.dtype)
    symbols = None if proto.shape.unknown_rank else tuple(int(d.size) for d in proto.shape.dim)
    shape = None if symbols is None else tuple(max(d, -1) for d in symbols)
    value = None
    if dtype.is_integer and proto.HasField("value"):
        value = tuple(int(x) for x in tf.make_ndarray(proto.value).reshape(-1)[:16])
    return TensorProperties(dtype, shape, value, symbols)
