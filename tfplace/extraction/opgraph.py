"""From a flat GraphDef to an OpGraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from grappler_bridge.item import TensorProperties
from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.graph import AttrValue, Body, OpGraph, Origin, UnknownShape, Variable
from tfplace.extraction.bodies import RULE_ONCE, RULE_UNREAD, KeptFunction, kept_functions
from tfplace.extraction.kernels import DEVICE_TYPES, KernelSupport, kernel_support
from tfplace.extraction.loops import find_loops
from tfplace.extraction.nodes import Nodes
from tfplace.extraction.shapes import (
    REDUCTIONS,
    RULE_HANDLE,
    RULE_LIKE_INPUT,
    Properties,
    Sized,
    infer,
    partition_rows,
    size_tensor,
)
from tfplace.extraction.tensor_lists import list_bytes
from tfplace.extraction.tf_internals import op_def

# Constants up to this size are copied to every device that reads them instead of being sent there each step.
REPLICABLE_BYTES = 64 * 1024

_CALLS = {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "Case"}
_LOOP_UNKNOWN = "loop iterations unknown, counted as one"


def build_graph(
    graph_def: Any,
    *,
    name: str,
    fetches: Sequence[str],
    variables: Mapping[str, tuple[str, int, bool]],
    inference_def: Any,
    colocation: Mapping[str, str],
    batch_size: int,
    origin: Origin | None = None,
    elements: Mapping[str, int] | None = None,
    properties: Properties | None = None,
) -> OpGraph:
    """Builds the OpGraph of a flat graph.

    Args:
      graph_def: the graph as it will run.
      name: the graph's name.
      fetches: op names the step returns or must run.
      variables: handle op -> (variable name, bytes, trainable).
      inference_def: the same nodes as `graph_def`, with whatever makes shapes known (concrete inputs, VarHandleOps).
      colocation: op name -> colocation group.
      batch_size: stands in for unknown dimensions.
      origin: kept in the graph.
      elements: op that stands for a dataset from outside -> how many elements that has, where known.
      properties: shapes of its tensors; None has them inferred.
    """
    nodes = Nodes(graph_def)
    properties = properties or infer(inference_def, nodes, fetches)
    loops = find_loops(nodes, properties.values())
    tensors = _Tensors(nodes, properties, loops.trips, batch_size)
    src, dst, tensor, slot, back = _edges(nodes, tensors.index)
    support = _kernels(nodes, inference_def)
    replicable = _replicable(nodes, tensors)
    kept = kept_functions(
        graph_def, nodes, properties, inference_def=inference_def, variables=variables, elements=elements or {}
    )
    bodies = tuple(Body(k.op, k.runs or 1.0, _body_graph(k, batch_size)) for k in kept)
    unknown = [*tensors.unknown]
    unknown += [UnknownShape(tensors.index[v, 0], nodes.names[v], (), _LOOP_UNKNOWN) for v in loops.unknown]
    for body, function in zip(bodies, kept, strict=True):
        rule = RULE_UNREAD if body.graph is None else RULE_ONCE if function.runs is None else ""
        if rule and (body.op, 0) in tensors.index:
            unknown.append(UnknownShape(tensors.index[body.op, 0], nodes.names[body.op], None, rule))
    return OpGraph(
        name=name,
        op_names=tuple(nodes.names),
        op_types=tuple(nodes.types),
        op_attrs=tuple(_plain_attrs(node) for node in nodes.defs),
        tensor_op=np.array([v for v, _ in tensors.index], np.int32),
        tensor_slot=np.array([s for _, s in tensors.index], np.int32),
        tensor_dtype=tuple(tensors.dtypes),
        tensor_shape=tuple(s.shape for s in tensors.sizes),
        tensor_bytes=np.array([s.size_bytes for s in tensors.sizes], np.int64),
        edge_src=src,
        edge_dst=dst,
        edge_tensor=tensor,
        edge_slot=slot,
        edge_back=back,
        trips=loops.trips,
        colocation=_group_ids(nodes, colocation, replicable),
        resource=_resource_bonds(nodes, tensors),
        kernel_types=DEVICE_TYPES,
        has_kernel=np.array([[t in s.types for t in DEVICE_TYPES] for s in support], bool).reshape(len(nodes), -1),
        host_memory=np.array([s.host_memory for s in support], bool),
        replicable=replicable,
        variables=tuple(
            Variable(label, nodes.index[op], size, trainable) for op, (label, size, trainable) in variables.items()
        ),
        unknown=tuple(unknown),
        bodies=bodies,
        fetches=tuple(fetches),
        origin=origin,
    )


def _body_graph(kept: KeptFunction, batch_size: int) -> OpGraph | None:
    """The graph of a function that an op keeps; None where there is none to read."""
    if kept.flat is None:
        return None
    return build_graph(
        kept.flat,
        name=kept.name,
        fetches=kept.fetches,
        variables=kept.variables,
        inference_def=kept.inference_def,
        colocation={},
        batch_size=batch_size,
    )


def _kernels(nodes: Nodes, inference_def: Any) -> list[KernelSupport]:
    """[V] kernel support; a variable that the graph has as an argument is only where one of its type can be made."""
    handles = {node.name: node for node in inference_def.node if node.op == "VarHandleOp"}
    out = []
    for node in nodes.defs:
        support = kernel_support(node)
        if node.op != "VarHandleOp" and node.name in handles:
            support = replace(support, types=support.types & kernel_support(handles[node.name]).types)
        out.append(support)
    return out


class _Tensors:
    """All outputs in op order.

    Attributes:
      index: (op, slot) -> tensor.
      dtypes: [T] names.
      sizes: [T].
      handle: [T] whether the tensor is a resource handle or a reference.
      unknown: tensors whose size is a stated guess.
    """

    def __init__(self, nodes: Nodes, properties: Properties, trips: Any, batch_size: int) -> None:
        self.index: dict[tuple[int, int], int] = {}
        self.dtypes: list[str] = []
        self.sizes: list[Sized] = []
        self.handle: list[bool] = []
        self.unknown: list[UnknownShape] = []
        lists, rows = list_bytes(nodes, properties, trips), partition_rows(nodes, properties)
        for v, node in enumerate(nodes.defs):
            outputs = properties.outputs.get(node.name) or []
            inputs = [self.index[u, s] for u, s in nodes.data_inputs[v] if (u, s) in self.index]
            largest = max((self.sizes[t].size_bytes for t in inputs if not self.handle[t]), default=0)
            for slot, known in enumerate(_complete(node, outputs)):
                sized = size_tensor(known, largest, batch_size, rows)
                if node.op in REDUCTIONS and inputs and sized.size_bytes > self.sizes[inputs[0]].size_bytes:
                    whole = self.sizes[inputs[0]]
                    sized = Sized(whole.shape, whole.size_bytes, RULE_LIKE_INPUT)
                if known.dtype == tf.variant and node.name in lists:
                    sized = Sized((), lists[node.name])
                elif known.dtype == tf.variant:
                    sized = replace(sized, rule=RULE_HANDLE.format(size=sized.size_bytes))
                t = len(self.sizes)
                self.index[v, slot] = t
                self.sizes.append(sized)
                self.dtypes.append(known.dtype.base_dtype.name)
                self.handle.append(known.dtype == tf.resource or known.dtype._is_ref_dtype)
                if sized.rule:
                    self.unknown.append(UnknownShape(t, node.name, known.shape, sized.rule))


def _complete(node: Any, outputs: list[TensorProperties]) -> list[TensorProperties]:
    """Inferred outputs, or those of the op's definition where inference has none (an op cut off from the fetches)."""
    wanted = output_dtypes(node)
    if wanted is None:
        return outputs
    known = [*outputs, *([None] * len(wanted))]
    filled = [p or TensorProperties(dtype, None, None) for p, dtype in zip(known, wanted, strict=False)]
    # Inference tells the base type; whether an output is a reference only the definition knows.
    return [replace(p, dtype=dtype) for p, dtype in zip(filled, wanted, strict=True)]


def output_dtypes(node: Any) -> list[Any] | None:
    """Output dtypes by the op's definition; None for a function called by its own name."""
    definition = op_def(node.op)
    if definition is None:
        return None
    dtypes: list[Any] = []
    for arg in definition.output_arg:
        if arg.type_list_attr:
            kinds = list(node.attr[arg.type_list_attr].list.type)
        else:
            kind = arg.type or node.attr[arg.type_attr].type
            kinds = [kind] * (node.attr[arg.number_attr].i if arg.number_attr else 1)
        dtypes += [tf.dtypes.as_dtype(k + (100 if arg.is_ref and k < 100 else 0)) for k in kinds]
    return dtypes


_Edges = tuple[IntArray, IntArray, IntArray, IntArray, BoolArray]  # src, dst, tensor, slot, back


def _edges(nodes: Nodes, index: Mapping[tuple[int, int], int]) -> _Edges:
    rows = []
    for v in nodes.order:
        for i, (u, slot) in enumerate(nodes.data_inputs[v]):
            rows.append((u, v, index[u, slot], i, nodes.is_back_edge(u, v)))
        rows += [(u, v, -1, -1, nodes.is_back_edge(u, v)) for u in nodes.control_inputs[v]]
    table = np.array(rows, np.int32).reshape(-1, 5)
    src, dst, tensor, position = (np.ascontiguousarray(table[:, i]) for i in range(4))
    return src, dst, tensor, position, table[:, 4].astype(bool)


def _resource_bonds(nodes: Nodes, tensors: _Tensors) -> IntArray:
    """[V] id of the set of ops joined by resource handles or references, or -1.

    Calls and loops that take a handle as an argument run on several devices themselves and are not bound by it, unless
    XLA compiles them for one device.
    """
    root = np.arange(len(nodes))

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return int(v)

    bound = np.zeros(len(nodes), bool)
    for v in nodes.order:
        for u, slot in nodes.data_inputs[v]:
            if tensors.handle[tensors.index[u, slot]] and (nodes.types[v] not in _CALLS or _is_for_xla(nodes.defs[v])):
                root[find(v)] = find(u)
                bound[u] = bound[v] = True
    return _number([find(v) if bound[v] else -1 for v in nodes.order])


def _is_for_xla(node: Any) -> bool:
    return "_XlaMustCompile" in node.attr and bool(node.attr["_XlaMustCompile"].b)


def _group_ids(nodes: Nodes, colocation: Mapping[str, str], replicable: BoolArray) -> IntArray:
    """[V] id of the colocation group of each op, or -1; what is copied to its readers is beside nothing else."""
    ids: dict[str, int] = {}
    groups = [None if copied else colocation.get(n) for n, copied in zip(nodes.names, replicable.tolist(), strict=True)]
    return _number([-1 if group is None else ids.setdefault(group, len(ids)) for group in groups])


def _number(labels: Sequence[int]) -> IntArray:
    """Labels renumbered by first use; -1 stays, and a label used once becomes -1: a bond of one binds nothing."""
    counts: dict[int, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    ids: dict[int, int] = {}
    return np.array([-1 if k < 0 or counts[k] == 1 else ids.setdefault(k, len(ids)) for k in labels], np.int32)


def _replicable(nodes: Nodes, tensors: _Tensors) -> BoolArray:
    small = [
        op == "Const" and tensors.sizes[tensors.index[v, 0]].size_bytes <= REPLICABLE_BYTES
        for v, op in enumerate(nodes.types)
    ]
    return np.array(small, bool)


def _plain_attrs(node: Any) -> dict[str, AttrValue]:
    """The node's numbers, texts and number lists."""
    out: dict[str, AttrValue] = {}
    for key, value in node.attr.items():
        kind = value.WhichOneof("value")
        if key.startswith("_"):
            continue
        if kind in ("i", "f", "b"):
            out[key] = getattr(value, kind)
        elif kind == "s" and len(value.s) <= 256:
            out[key] = value.s.decode(errors="replace")
        elif kind == "type":
            out[key] = tf.dtypes.as_dtype(value.type).base_dtype.name
        elif kind == "list" and value.list.i:
            out[key] = tuple(value.list.i)
    return out
