"""A traced function as an OpGraph, and back as a MetaGraphDef."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfplace.core.graph import OpGraph
from tfplace.extraction import tf_internals
from tfplace.extraction.batch import check_shape, shapes_by_name
from tfplace.extraction.flatten import FlatFunction, flatten
from tfplace.extraction.metagraph import step_metagraph
from tfplace.extraction.opgraph import build_graph
from tfplace.extraction.shapes import Properties, element_bytes


@dataclass(frozen=True, eq=False)
class FunctionOrigin:
    """A graph that came from a traced function.

    Attributes:
      flat: the flattened function.
      description: one line for people.
      shapes: argument op -> concrete shape, where the trace left dimensions open.
      model: the Keras model whose step it is, or None.
      owner: whatever else owns the captured variables and must live as long as the graph.
      jit_compile: whether the program asks XLA to compile the step.
    """

    flat: FlatFunction
    description: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    model: Any = None
    owner: Any = None
    jit_compile: bool = False

    def metagraph(self, devices: Mapping[str, str] | None = None) -> Any:
        """The step as a MetaGraphDef: captured variables are `VarHandleOp`s, captured tensors constants."""
        graph_def = standalone(self.flat, self.shapes, constants=True)
        return step_metagraph(graph_def, self.flat.fetches, argument_ops(self.flat), self.flat.output_names, devices)

    def variables(self) -> dict[str, Any]:
        """Handle op -> the `tf.Variable` it stands for."""
        return captured_variables(self.flat)


def graph_from_function(
    concrete: Any,
    *,
    name: str,
    description: str,
    shapes: Sequence[tuple[int, ...] | None] = (),
    model: Any = None,
    owner: Any = None,
) -> OpGraph:
    """Flattens a `ConcreteFunction` and describes it as an OpGraph.

    Args:
      concrete: the function.
      name: the graph's name.
      description: one line about where it came from.
      shapes: concrete shapes of the function's arguments in flat order, used for sizes where the trace left dimensions
        open; None for an argument without one.
      model: the Keras model whose step it is, or None.
      owner: whatever else owns the captured variables.

    Raises:
      SourceError: shapes for another number of arguments.
    """
    flat = flatten(concrete)
    given = shapes_by_name(argument_ops(flat), shapes)
    origin = FunctionOrigin(flat, description, given, model, owner, asks_for_xla(concrete, model))
    return graph_of_flat(flat, name=name, origin=origin, batch_size=_batch_size(flat, given))


def graph_of_flat(
    flat: FlatFunction, *, name: str, origin: FunctionOrigin, batch_size: int, properties: Properties | None = None
) -> OpGraph:
    """Describes a flattened function as an OpGraph.

    Args:
      flat: the function.
      name: the graph's name.
      origin: where it came from.
      batch_size: stands in for unknown dimensions.
      properties: shapes of its tensors; None has them inferred.
    """
    return build_graph(
        flat.graph_def,
        name=name,
        fetches=flat.fetches,
        variables=_variables(flat),
        inference_def=standalone(flat, origin.shapes, constants=False),
        colocation=flat.colocation,
        batch_size=batch_size,
        elements=_dataset_elements(flat),
        origin=origin,
        properties=properties,
    )


def asks_for_xla(concrete: Any, model: Any = None) -> bool:
    """Whether a traced function, or the Keras model whose step it is, has jit_compile=True."""
    attributes = concrete.function_def.attr
    if "_XlaMustCompile" in attributes and attributes["_XlaMustCompile"].b:
        return True
    return model is not None and bool(getattr(model, "jit_compile", False))


def captures(flat: FlatFunction) -> list[tuple[Any, str]]:
    """Captured tensors with the names of the ops that stand for them."""
    return [(external, internal.op.name) for external, internal in flat.concrete.graph.captures]


def _dataset_elements(flat: FlatFunction) -> dict[str, int]:
    """Op of a captured dataset -> how many elements it says it has, if it does."""
    out: dict[str, int] = {}
    for external, op in captures(flat):
        if getattr(external, "dtype", None) == tf.variant and not tf.is_symbolic_tensor(external):
            with contextlib.suppress(tf.errors.OpError):  # it is a list, or what else is a variant
                count = int(tf.raw_ops.DatasetCardinality(input_dataset=external))
                out |= {op: count} if count >= 0 else {}
    return out


def argument_ops(flat: FlatFunction) -> tuple[str, ...]:
    """Names of the argument ops, captures left out."""
    captured = {op for _, op in captures(flat)}
    return tuple(op for op in flat.input_names if op not in captured)


def captured_variables(flat: FlatFunction) -> dict[str, Any]:
    """Handle op -> `tf.Variable`."""
    by_handle = tf_internals.captured_variables(flat.concrete)
    return {op: by_handle[id(external)] for external, op in captures(flat) if id(external) in by_handle}


def _variables(flat: FlatFunction) -> dict[str, tuple[str, int, bool]]:
    out = {}
    for op, variable in captured_variables(flat).items():
        shape = variable.shape if variable.shape.is_fully_defined() else variable.value().shape  # as large as it is now
        elements = math.prod(shape.as_list())
        label = variable.name.removesuffix(":0")
        out[op] = (label, elements * element_bytes(variable.dtype), bool(variable.trainable))
    return out


def standalone(flat: FlatFunction, shapes: Mapping[str, tuple[int, ...]], *, constants: bool) -> Any:
    """The flat graph without captures: variables become `VarHandleOp`s, argument shapes are written in.

    Args:
      flat: the function.
      shapes: argument op -> shape.
      constants: whether captured tensors become constants with their values; else placeholders with their shape.
    """
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(flat.graph_def)
    nodes = {node.name: node for node in graph_def.node}
    variables = captured_variables(flat)
    for external, op in captures(flat):
        node = nodes[op]
        if op in variables:
            _make_handle(node, variables[op])
        elif external.dtype not in (tf.resource, tf.variant):
            _make_constant(node, external, with_value=constants)
    for node in graph_def.node:
        if node.op == "VariableShape" and node.input[0] in variables and not constants:
            shape = variables[node.input[0]].shape
            if shape.is_fully_defined():
                _make_shape(node, shape)
    for tensor in flat.concrete.graph.inputs:
        if tensor.op.name not in variables and tensor.dtype not in (tf.resource, tf.variant):
            node = nodes[tensor.op.name]
            if node.op == "Placeholder":
                shape = shapes.get(tensor.op.name)
                check_shape(tensor.op.name, shape, tensor.shape)
                node.attr["shape"].shape.CopyFrom((tf.TensorShape(shape) if shape else tensor.shape).as_proto())
    return graph_def


def _make_handle(node: Any, variable: Any) -> None:
    node.op = "VarHandleOp"
    node.attr.clear()
    node.attr["dtype"].type = variable.dtype.base_dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
    # Variables of a model may share a name (Keras); the op's name is unique.
    node.attr["shared_name"].s = node.name.encode()


def _make_shape(node: Any, shape: Any) -> None:
    """A variable's shape is known before the run, but shape inference does not fold the op that asks for it."""
    value = tf.make_tensor_proto(shape.as_list(), tf.dtypes.as_dtype(node.attr["out_type"].type or tf.int32))
    controls = [f"^{node.input[0]}", *(text for text in node.input if text.startswith("^"))]
    node.op = "Const"
    del node.input[:]
    node.input.extend(controls)
    node.attr.clear()
    node.attr["dtype"].type = value.dtype
    node.attr["value"].tensor.CopyFrom(value)


def _make_constant(node: Any, tensor: Any, *, with_value: bool) -> None:
    if not with_value:
        node.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())
        return
    node.op = "Const"
    node.attr.clear()
    node.attr["dtype"].type = tensor.dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(tensor.numpy()))


def _batch_size(flat: FlatFunction, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """First dimension of the first argument that has one, of what a sparse or ragged one stands for; 1 if none has."""
    tensors = iter(flat.concrete.graph.inputs)
    for spec in tf.nest.flatten(flat.concrete.structured_input_signature):
        if not isinstance(spec, tf.TypeSpec):
            continue  # a constant
        parts = list(itertools.islice(tensors, len(tf.nest.flatten(spec, expand_composites=True))))
        shape = tf.TensorShape(getattr(spec, "shape", None))
        if len(parts) == 1:
            shape = tf.TensorShape(shapes.get(parts[0].op.name, parts[0].shape))
        if shape.rank and shape[0]:
            return int(shape[0])
    return 1
