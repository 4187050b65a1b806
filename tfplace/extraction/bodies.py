"""Functions that ops keep: what flattening can neither inline nor lower, found by attributes, not by op types.

A dataset's `map` or `reduce`, a `MapDefun` or a cluster for XLA has its function in the graph's library; a Python
function is nowhere in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfplace.errors import SourceError
from tfplace.extraction.datasets import dataset_elements, elements_read
from tfplace.extraction.flatten import clean, shorten
from tfplace.extraction.nodes import Nodes
from tfplace.extraction.shapes import Properties
from tfplace.extraction.tf_internals import op_def

PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})

RULE_UNREAD = "the function it keeps cannot be read and is counted by the bytes that go in and out"
RULE_ONCE = "the function it keeps is counted as if it ran once"

_CALL = "kept"
_DONE = "kept/done"
_ONCE = frozenset({"Case", "If", "PartitionedCall", "StatefulPartitionedCall", "StatelessCase", "StatelessIf"})


@dataclass(frozen=True)
class KeptFunction:
    """A function that an op keeps, flattened like the graph it is in.

    Attributes:
      op: position of the op.
      name: of the function.
      runs: executions in one execution of the op; None if that is not known.
      flat: flat `GraphDef`; None if there is none to read. Then what follows is empty.
      inference_def: the same, with what is known of the arguments written in.
      fetches: names of the ops that have to run.
      variables: argument op -> (variable name, bytes, trainable).
    """

    op: int
    name: str
    runs: float | None
    flat: Any = None
    inference_def: Any = None
    fetches: tuple[str, ...] = ()
    variables: Mapping[str, tuple[str, int, bool]] = field(default_factory=dict)


def kept_functions(
    graph_def: Any,
    nodes: Nodes,
    properties: Properties,
    *,
    inference_def: Any,
    variables: Mapping[str, tuple[str, int, bool]],
    elements: Mapping[str, int],
) -> list[KeptFunction]:
    """All functions that ops of a flat graph keep, in the order of the ops.

    Args:
      graph_def: the graph, with the library of its functions.
      nodes: its nodes.
      properties: what is known of the outputs.
      inference_def: the same nodes with `VarHandleOp`s for variables.
      variables: handle op -> (variable name, bytes, trainable).
      elements: op that stands for a dataset from outside -> how many elements that has, where known.
    """
    library = {function.signature.name: function for function in graph_def.library.function}
    counts = dataset_elements(nodes, properties, elements)
    handles = {node.name: node for node in inference_def.node if node.op == "VarHandleOp"}
    outside = _Outside(graph_def, nodes, properties, handles, variables)
    out = []
    for v, node in enumerate(nodes.defs):
        if node.op in PYTHON:
            out.append(KeptFunction(v, node.op, None))
        for attribute, name in _named(node, library):
            runs = 1.0 if node.op in _ONCE or node.op in library else elements_read(nodes, v, counts)
            function = library.get(name)
            if function is None:
                out.append(KeptFunction(v, name, runs))
                continue
            given = _arguments(nodes, v, attribute, function)
            out.append(_read(v, function, runs, given, outside))
    return out


def _named(node: Any, library: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Attributes that name functions, with the functions' names; an op may also be called as its function is."""
    if node.op in library:
        yield "", node.op
    for attribute in sorted(node.attr):
        value = node.attr[attribute]
        functions = [value.func] if value.WhichOneof("value") == "func" else value.list.func
        if not attribute.startswith("_"):
            yield from ((attribute, function.name) for function in functions if function.name)


def _arguments(nodes: Nodes, v: int, attribute: str, function: Any) -> dict[int, tuple[int, int]]:
    """Argument of a function -> the input, as (producer, output slot), of the op that keeps it.

    The last arguments are a list of the op's inputs, such as `other_arguments`, or all of its inputs; those before,
    such as the elements of a dataset, come from within. Of several such lists that of the attribute's name is meant.
    """
    dtypes = [argument.type for argument in function.signature.input_arg]
    node, inputs = nodes.defs[v], nodes.data_inputs[v]
    found: list[tuple[bool, int, int]] = []  # whether it has the attribute's name; where it begins, and how long it is
    definition, start = op_def(node.op), 0
    for argument in definition.input_arg if definition else ():
        kinds = list(node.attr[argument.type_list_attr].list.type) if argument.type_list_attr else []
        if kinds and kinds == dtypes[len(dtypes) - len(kinds) :]:
            found.append((argument.name.startswith(attribute), start, len(kinds)))
        many = node.attr[argument.number_attr].i if argument.number_attr else 1
        start += len(kinds) if argument.type_list_attr else many
    if definition is None and len(inputs) == len(dtypes):
        found.append((True, 0, len(dtypes)))
    if not found:
        return {}
    _, begin, length = max(found)
    return {len(dtypes) - length + i: inputs[begin + i] for i in range(length)}


@dataclass(frozen=True)
class _Outside:
    """What a function is in.

    Attributes:
      graph_def: the graph, whose library is the function's too.
      nodes: its nodes.
      properties: what is known of their outputs.
      handles: op -> the `VarHandleOp` that it is.
      variables: handle op -> (variable name, bytes, trainable).
    """

    graph_def: Any
    nodes: Nodes
    properties: Properties
    handles: Mapping[str, Any]
    variables: Mapping[str, tuple[str, int, bool]]


def _read(
    v: int, function: Any, runs: float | None, given: Mapping[int, tuple[int, int]], outside: _Outside
) -> KeptFunction:
    """The function as the flat graph of a call of it."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.library.CopyFrom(outside.graph_def.library)
    graph_def.versions.CopyFrom(outside.graph_def.versions)
    for other in graph_def.library.function:
        if other.signature.name == function.signature.name:
            other.attr.pop("_XlaMustCompile", None)  # lest the call be kept that is to be inlined here
    call = tf.compat.v1.NodeDef(name=_CALL, op="StatefulPartitionedCall")
    call.attr["f"].func.name = function.signature.name
    handles: dict[str, Any] = {}
    variables: dict[str, tuple[str, int, bool]] = {}
    names: list[str] = []
    for i, argument in enumerate(function.signature.input_arg):
        names.append(f"argument_{i}")
        node = graph_def.node.add(name=names[-1], op="Placeholder")
        node.attr["dtype"].type = argument.type
        node.attr["shape"].shape.unknown_rank = True
        call.input.append(names[-1])
        call.attr["Tin"].list.type.append(argument.type)
        if i not in given:
            shapes = function.arg_attr[i].attr["_output_shapes"].list.shape if i in function.arg_attr else ()
            if shapes:
                node.attr["shape"].shape.CopyFrom(shapes[0])
            continue
        producer, slot = outside.nodes.names[given[i][0]], given[i][1]
        known = outside.properties.outputs.get(producer, [])
        if producer in outside.handles:
            handles[node.name] = outside.handles[producer]
            variables |= {node.name: outside.variables[producer]} if producer in outside.variables else {}
        elif slot < len(known) and known[slot].dtype not in (tf.resource, tf.variant):
            node.attr["shape"].shape.CopyFrom(_shape(known[slot].shape).as_proto())
    graph_def.node.append(call)
    for i, result in enumerate(function.signature.output_arg):
        call = graph_def.node[len(function.signature.input_arg)]
        call.attr["Tout"].list.type.append(result.type)
        names.append(f"result_{i}")
        node = graph_def.node.add(name=names[-1], op="Identity", input=[f"{_CALL}:{i}"])
        node.attr["T"].type = result.type
    graph_def.node.add(name=_DONE, op="NoOp", input=[f"^{_CALL}"])
    names.append(_DONE)
    try:
        flat = shorten(graph_def, names)
    except SourceError:
        return KeptFunction(v, function.signature.name, runs)
    clean(flat)
    # A function that calls itself, by way of others or not, is read once.
    others = [other for other in flat.library.function if other.signature.name != function.signature.name]
    del flat.library.function[:]
    flat.library.function.extend(others)
    inference_def = tf.compat.v1.GraphDef()
    inference_def.CopyFrom(flat)
    for node in inference_def.node:
        if node.name in handles:
            handle = handles[node.name]
            node.op = handle.op
            node.attr.clear()
            for key in handle.attr:
                node.attr[key].CopyFrom(handle.attr[key])
    return KeptFunction(v, function.signature.name, runs, flat, inference_def, tuple(names), variables)


def _shape(known: tuple[int, ...] | None) -> tf.TensorShape:
    return tf.TensorShape(None if known is None else [None if d < 0 else d for d in known])
