"""Shapes and bytes of every tensor of a flat graph, and the rules for what stays unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from grappler_bridge.item import TensorProperties, infer_properties
from tfplace.core.graph import Shape
from tfplace.extraction.nodes import Nodes
from tfplace.extraction.refusals import grappler_refusals

LIST_POP = {"TensorListPopBack": 1, "TensorListGetItem": 0}  # op type -> output slot of the element
LIST_PUSH = {"TensorListPushBack": 1, "TensorListSetItem": 2}  # op type -> input position of the element

REDUCTIONS = frozenset({"All", "Any", "Max", "Mean", "Min", "Prod", "Sum"})
"""Whose result is no larger than the first input, however little is known of its shape."""

# Handles, TensorLists apart, are a pointer wherever they are.
HANDLE_BYTES = 8
TEXT_BYTES = 32

RULE_DIMENSION = "unknown dimensions counted as {size}, the batch's first dimension"
RULE_PARTITION = "unknown dimensions counted as {sizes}: partitions as if they were of one size"
RULE_HANDLE = "a list of unknown elements counted as {size} bytes, its handle"
RULE_LIKE_INPUT = "unknown shape counted as its largest input"
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

    A list that a loop fills is made with unknown element shape, so what the gradient loop of an RNN pops from it is
    unknown too. Each round gives the readers of such pops the shape that the elements pushed to the list have by then.

    Raises:
      SourceError: Grappler refuses the graph.
    """
    work = tf.compat.v1.GraphDef()
    work.CopyFrom(graph_def)
    families = list_families(nodes)
    told: dict[str, TensorProperties] = {}
    while True:
        with grappler_refusals():
            outputs = infer_properties(work, fetches)
        for name, element in told.items():
            outputs[name][LIST_POP[nodes.types[nodes.index[name]]]] = element
        elements = _list_elements(nodes, families, outputs)
        for v in (v for v in nodes.order if nodes.types[v] == "TensorListElementShape"):
            held = elements.get(nodes.names[v])
            if held is not None and held.shape is not None:
                outputs[nodes.names[v]] = [TensorProperties(tf.int32, (len(held.shape),), None)]
                elements |= _list_elements(nodes, families, outputs)
        if not _substitute_pops(nodes, outputs, elements, work, told):
            return Properties(outputs, elements)


def list_families(nodes: Nodes) -> dict[int, list[int]]:
    """Ops on the same TensorList: op -> all of them. A list flows through variant edges, into and out of loops."""
    root = list(range(len(nodes)))

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    member = [False] * len(nodes)
    for v in nodes.order:
        for u, slot in nodes.data_inputs[v]:
            if _is_list(nodes, u, slot):
                root[find(v)] = find(u)
                member[u] = member[v] = True
    groups: dict[int, list[int]] = {}
    for v in nodes.order:
        if member[v]:
            groups.setdefault(find(v), []).append(v)
    return {v: group for group in groups.values() for v in group}


_LIST_MAKERS = {"EmptyTensorList", "TensorListReserve", "TensorListFromTensor", *LIST_PUSH, "TensorListResize"}
_FLOW = {"Enter", "Exit", "Merge", "Switch", "NextIteration", "Identity"}


def _is_list(nodes: Nodes, op: int, slot: int) -> bool:
    """Whether an output is a TensorList's handle."""
    if nodes.types[op] in _FLOW:
        return slot <= 1 and bool(nodes.defs[op].attr["T"].type == tf.variant.as_datatype_enum)
    return slot == 0 and (nodes.types[op] in _LIST_MAKERS or nodes.types[op] == "TensorListPopBack")


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


def _substitute_pops(
    nodes: Nodes,
    outputs: Mapping[str, list[TensorProperties]],
    elements: Mapping[str, TensorProperties],
    work: Any,
    told: dict[str, TensorProperties],
) -> bool:
    """Makes the readers of pops of unknown shape read a placeholder of the element's shape; whether there were any."""
    renamed: dict[str, str] = {}
    for v in nodes.order:
        name, slot = nodes.names[v], LIST_POP.get(nodes.types[v])
        element = elements.get(name)
        if slot is None or element is None or name in told or _known(outputs.get(name, []), slot):
            continue
        stand_in = work.node.add()
        stand_in.name, stand_in.op = f"{name}/tfplace_element", "Placeholder"
        stand_in.attr["dtype"].type = element.dtype.base_dtype.as_datatype_enum
        stand_in.attr["shape"].shape.CopyFrom(tf.TensorShape(element.shape).as_proto())
        renamed[f"{name}:{slot}" if slot else name] = stand_in.name
        told[name] = element
    for node in work.node if renamed else ():
        for position, text in enumerate(node.input):
            if text in renamed:
                node.input[position] = renamed[text]
    return bool(renamed)


def _known(outputs: Sequence[TensorProperties], slot: int) -> bool:
    if slot >= len(outputs):
        return False
    shape = outputs[slot].shape
    return shape is not None and -1 not in shape


@dataclass(frozen=True)
class Sized:
    """The size of one tensor.

    Attributes:
      shape: with unknown dimensions filled; None for unknown rank.
      size_bytes: bytes.
      rule: how unknown parts were counted; "" if nothing was unknown.
    """

    shape: Shape
    size_bytes: int
    rule: str = ""


def partition_rows(nodes: Nodes, properties: Properties) -> dict[int, int]:
    """Unknown dimension, by its number, of what `DynamicPartition` makes -> rows of a part, if all are of one size."""
    rows: dict[int, int] = {}
    for v in (v for v in nodes.order if nodes.types[v] == "DynamicPartition"):
        outputs = properties.outputs.get(nodes.names[v], [])
        whole = _input(nodes, v, 0, properties.outputs)
        if not outputs or whole is None or not whole.shape or whole.shape[0] < 0:
            continue
        for part in outputs:
            if part.symbols and part.symbols[0] < -1:
                share = math.ceil(whole.shape[0] / len(outputs))
                rows[part.symbols[0]] = max(rows.get(part.symbols[0], 0), share)
    return rows


def size_tensor(known: TensorProperties, largest_input: int, batch_size: int, sizes: Mapping[int, int]) -> Sized:
    """Shape and bytes of one output.

    Args:
      known: inferred properties.
      largest_input: bytes of the op's largest input of known size, 0 if there is none.
      batch_size: first dimension of the batch, which stands in for unknown dimensions.
      sizes: unknown dimension by its number -> what stands in for it instead.
    """
    element = element_bytes(known.dtype)
    if known.dtype in (tf.resource, tf.variant):
        return Sized((), HANDLE_BYTES)
    if known.shape is None:
        if largest_input:
            return Sized(None, largest_input, RULE_LIKE_INPUT)
        return Sized(None, element, RULE_SCALAR)
    if -1 in known.shape:
        symbols = known.symbols or known.shape
        shape = tuple(sizes.get(d, batch_size) if d < 0 else d for d in symbols)
        told = sorted({sizes[d] for d in symbols if d in sizes})
        rule = RULE_PARTITION.format(sizes=told) if told else RULE_DIMENSION.format(size=batch_size)
        return Sized(shape, math.prod(shape) * element, rule)
    return Sized(known.shape, math.prod(known.shape) * element)


def element_bytes(dtype: Any) -> int:
    """Bytes of one element; texts and handles by the constants above."""
    if dtype == tf.string:
        return TEXT_BYTES
    if dtype.base_dtype in (tf.resource, tf.variant):
        return HANDLE_BYTES
    return max(1, int(dtype.base_dtype.size))
