"""Shapes and bytes of every tensor of a flat graph, and the rules for what stays unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from grappler_bridge.item import TensorProperties, infer_properties
from tfplace.core.graph import Shape
from tfplace.extract.nodes import Nodes

LIST_PUSH = {"TensorListPushBack": 1, "TensorListSetItem": 2}  # op type -> input position of the element
LIST_POP = {"TensorListPopBack": 1, "TensorListGetItem": 2}  # op type -> input position of the element shape

# Handles, TensorLists apart, are a pointer wherever they are.
HANDLE_BYTES = 8
TEXT_BYTES = 32

RULE_DIMENSION = "unknown dimensions counted as {size}, the batch's first dimension"
RULE_LIKE_INPUT = "unknown rank counted as its largest input"
RULE_SCALAR = "unknown rank without known input counted as one element"


@dataclass(frozen=True)
class Properties:
    """Properties by (op name, output slot).

    Attributes:
      outputs: op name -> properties of its outputs.
      list_element: op name of an op on a TensorList -> shape and dtype of the list's elements, where known.
    """

    outputs: Mapping[str, list[TensorProperties]]
    list_element: Mapping[str, TensorProperties]

    def values(self) -> dict[tuple[str, int], Sequence[int]]:
        """Known integer values, by (op name, slot)."""
        return {
            (op, slot): p.value for op, ps in self.outputs.items() for slot, p in enumerate(ps) if p.value is not None
        }


def infer(graph_def: Any, nodes: Nodes, fetches: Sequence[str]) -> Properties:
    """Infers shapes, carrying the element shapes of TensorLists from where they are pushed to where they are popped.

    Shape inference forgets a list's element shape when the list leaves one loop and enters another, as between the
    forward and the gradient loop of an RNN. Each round writes what is known of the pushed elements into the pops.
    """
    work = tf.compat.v1.GraphDef()
    work.CopyFrom(graph_def)
    by_name = {node.name: node for node in work.node}
    families = _list_families(nodes)
    while True:
        outputs = infer_properties(work, fetches)
        elements = _list_elements(nodes, families, outputs)
        if not _write_pop_shapes(nodes, outputs, elements, work, by_name):
            return Properties(outputs, elements)


def _list_families(nodes: Nodes) -> dict[int, list[int]]:
    """Ops on the same TensorList: op -> all of them. A list flows through variant edges, into and out of loops."""
    root = list(range(len(nodes)))

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    member = [False] * len(nodes)
    for v in nodes.order:
        if not (nodes.types[v].startswith("TensorList") or nodes.types[v] == "EmptyTensorList"):
            continue
        member[v] = True
        stack = [u for u, slot in nodes.data_inputs[v][:1] if _is_handle(nodes, u, slot)]
        while stack:  # back through the control flow to the ops that made the list
            u = stack.pop()
            if find(u) == find(v):
                continue
            root[find(u)] = find(v)
            member[u] = True
            if nodes.types[u] in _LIST_FLOW:
                stack += [w for w, slot in nodes.data_inputs[u][:2] if _is_handle(nodes, w, slot)]
            elif nodes.types[u] in LIST_PUSH or nodes.types[u] in LIST_POP:
                stack += [w for w, _ in nodes.data_inputs[u][:1]]
    groups: dict[int, list[int]] = {}
    for v in nodes.order:
        if member[v]:
            groups.setdefault(find(v), []).append(v)
    return {v: group for group in groups.values() for v in group}


_LIST_FLOW = {"Enter", "Exit", "Merge", "Switch", "NextIteration", "Identity"}


def _is_handle(nodes: Nodes, op: int, slot: int) -> bool:
    """Whether an output may be a list handle: of the ops on a list, only a pop's second output is not."""
    if nodes.types[op] in _LIST_FLOW:
        attr = nodes.defs[op].attr["T"].type
        return bool(attr == tf.variant.as_datatype_enum)
    return slot == 0


def _list_elements(
    nodes: Nodes, families: Mapping[int, list[int]], outputs: Mapping[str, list[TensorProperties]]
) -> dict[str, TensorProperties]:
    """For each op on a list, the properties of an element that is pushed to, or unstacked into, the list."""
    found: dict[int, TensorProperties] = {}
    for v, family in families.items():
        element = _pushed(nodes, v, outputs)
        if element is not None and element.shape is not None and -1 not in element.shape:
            found[id(family)] = element
    return {nodes.names[v]: found[id(family)] for v, family in families.items() if id(family) in found}


def _pushed(nodes: Nodes, v: int, outputs: Mapping[str, list[TensorProperties]]) -> TensorProperties | None:
    op = nodes.types[v]
    if op in LIST_PUSH and len(nodes.data_inputs[v]) > LIST_PUSH[op]:
        return _input(nodes, v, LIST_PUSH[op], outputs)
    if op == "TensorListFromTensor":
        whole = _input(nodes, v, 0, outputs)
        if whole is not None and whole.shape:
            return TensorProperties(whole.dtype, whole.shape[1:], None)
    return None


def _input(
    nodes: Nodes, v: int, position: int, outputs: Mapping[str, list[TensorProperties]]
) -> TensorProperties | None:
    u, slot = nodes.data_inputs[v][position]
    properties = outputs.get(nodes.names[u], [])
    return properties[slot] if slot < len(properties) else None


def _write_pop_shapes(
    nodes: Nodes,
    outputs: Mapping[str, list[TensorProperties]],
    elements: Mapping[str, TensorProperties],
    work: Any,
    by_name: Mapping[str, Any],
) -> bool:
    """Gives pops of unknown shape the element shape of their list; whether any was given."""
    changed = False
    for v in nodes.order:
        position = LIST_POP.get(nodes.types[v])
        element = elements.get(nodes.names[v])
        if position is None or element is None or element.shape is None:
            continue
        popped = outputs.get(nodes.names[v], [])[-1:]
        if not popped or (popped[0].shape is not None and -1 not in popped[0].shape):
            continue
        node = by_name[nodes.names[v]]
        shape_name = f"tfplace_shape/{node.name}"
        if node.input[position] == shape_name:
            continue
        shape = work.node.add()
        shape.name, shape.op = shape_name, "Const"
        shape.attr["dtype"].type = tf.int32.as_datatype_enum
        shape.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(list(element.shape), tf.int32))
        for other in nodes.defs[nodes.index[nodes.names[v]]].input:
            if other.startswith("^"):
                shape.input.append(other)
        node.input[position] = shape_name
        changed = True
    return changed


@dataclass(frozen=True)
class Sized:
    """Attributes: shape, filled; size_bytes; rule, how unknown parts were counted, "" if nothing was unknown."""

    shape: Shape
    size_bytes: int
    rule: str = ""


def size_tensor(known: TensorProperties, largest_input: int, batch_size: int) -> Sized:
    """Shape and bytes of one output.

    Args:
      known: inferred properties.
      largest_input: bytes of the op's largest input of known size, 0 if there is none.
      batch_size: first dimension of the batch, which stands in for unknown dimensions.
    """
    element = element_bytes(known.dtype)
    if known.dtype in (tf.resource, tf.variant):
        return Sized((), HANDLE_BYTES)
    if known.shape is None:
        if largest_input:
            return Sized(None, largest_input, RULE_LIKE_INPUT)
        return Sized(None, element, RULE_SCALAR)
    if -1 in known.shape:
        shape = tuple(batch_size if d < 0 else d for d in known.shape)
        return Sized(shape, math.prod(shape) * element, RULE_DIMENSION.format(size=batch_size))
    return Sized(known.shape, math.prod(known.shape) * element)


def element_bytes(dtype: Any) -> int:
    """Bytes of one element; texts and handles by the constants above."""
    if dtype == tf.string:
        return TEXT_BYTES
    if dtype.base_dtype in (tf.resource, tf.variant):
        return HANDLE_BYTES
    return max(1, int(dtype.base_dtype.size))
