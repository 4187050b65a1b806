"""What a GraphDef must be before native code is given it.

Grappler and the C++ protocol buffers behind it end the process at an attribute that is missing, a dimension of -5 or an
input that no op makes. A file may hold any of these, so every node is held against the definition of its op first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import tensorflow as tf

from tfplace.errors import SourceError
from tfplace.extraction.nodes import parse_input
from tfplace.extraction.tf_internals import op_def

_NODE_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_.\\/>-]*")
_FUNCTION_INPUT = re.compile(r"\^?([^:^]+)(:[A-Za-z0-9_]+)?(:\d{1,9})?")
_MOST_DIMENSIONS = 254
_MOST_ELEMENTS = 2**63
_MOST_OUTPUTS = 2**16
_MOST_CONSTANT_BYTES = 2**31
"""A message of more bytes cannot be read, though one may say that its one value stands for more."""
_REFERENCE = 100
"""What the number of a reference's type is above that of the type itself."""

_FIELDS = {
    "string": "s",
    "int": "i",
    "float": "f",
    "bool": "b",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}
"""Kind of an attribute -> the field of an `AttrValue` that holds it."""

_VALUE_FIELDS = {
    **dict.fromkeys((tf.float16, tf.bfloat16), ("half_val", 1)),
    **dict.fromkeys((tf.float32,), ("float_val", 1)),
    **dict.fromkeys((tf.float64,), ("double_val", 1)),
    **dict.fromkeys((tf.complex64,), ("scomplex_val", 2)),
    **dict.fromkeys((tf.complex128,), ("dcomplex_val", 2)),
    **dict.fromkeys((tf.string,), ("string_val", 1)),
    **dict.fromkeys((tf.bool,), ("bool_val", 1)),
    **dict.fromkeys((tf.int64,), ("int64_val", 1)),
    **dict.fromkeys((tf.uint32,), ("uint32_val", 1)),
    **dict.fromkeys((tf.uint64,), ("uint64_val", 1)),
    **dict.fromkeys((tf.resource,), ("resource_handle_val", 1)),
    **dict.fromkeys((tf.variant,), ("variant_val", 1)),
    **dict.fromkeys(
        (tf.int32, tf.int16, tf.int8, tf.uint8, tf.uint16, tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32),
        ("int_val", 1),
    ),
}
"""Type -> the field of a `TensorProto` that holds its values, and how many numbers make one; others have bytes only."""


def check_graph_def(graph_def: Any, results: Iterable[str] = ()) -> None:
    """Refuses a GraphDef that TensorFlow could not import. Unknown ops are left to whoever looks them up.

    Args:
      graph_def: the graph.
      results: tensors "op:k" that its signatures name; those of ops that are not there do no harm.

    Raises:
      SourceError: a name that occurs twice or is none, an attribute that is missing or of another kind, an unknown
        type, an impossible shape, a constant whose content does not fit its shape, or an input that its producer does
        not have; of the graph or of a function in its library.
    """
    functions = {function.signature.name: function.signature for function in graph_def.library.function}
    _check_names(node.name for node in graph_def.node)
    if len(functions) != len(graph_def.library.function):
        raise _damaged("two functions with the same name", "unique function names")
    definitions = {node.name: _definition(node, functions) for node in graph_def.node}
    for node in graph_def.node:
        _check_attributes(node, definitions[node.name], f"op {node.name!r}", placeholders=False)
    outputs = {node.name: _outputs(node, definitions[node.name]) for node in graph_def.node}
    for node in graph_def.node:
        _check_inputs(node, definitions[node.name], outputs)
    for function in graph_def.library.function:
        _check_function(function, functions)
    for text in results:
        producer, slot = parse_input(text)
        _check_slot(slot, outputs.get(producer), f"a signature with result {text!r}")


def check_shape_proto(shape: Any, where: str) -> None:
    """Refuses a `TensorShapeProto` that is no shape: TensorFlow ends the process at one.

    Raises:
      SourceError: a dimension below -1, too many of them, or more elements than can be counted.
    """
    sizes = [dim.size for dim in shape.dim]
    if shape.unknown_rank and sizes:
        raise _damaged(
            f"{where} with a shape of unknown rank and {len(sizes)} dimensions", "an unknown rank, or known dimensions"
        )
    if len(sizes) > _MOST_DIMENSIONS:
        raise _damaged(f"{where} with a shape of {len(sizes)} dimensions", f"at most {_MOST_DIMENSIONS}")
    if min(sizes, default=0) < -1:
        raise _damaged(f"{where} with a dimension of {min(sizes)}", "at least 0, or -1 for an unknown one")
    if math.prod(size for size in sizes if size > 0) >= _MOST_ELEMENTS:
        raise _damaged(f"{where} of shape {sizes}", "fewer than 2^63 elements")


def _damaged(received: str, expected: str) -> SourceError:
    return SourceError(received, expected, "The file may be damaged: write it again.")


def _check_names(names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if not _NODE_NAME.fullmatch(name):
            raise _damaged(f"an op named {name[:80]!r}", "letters, digits and any of _ . - / \\ >")
        if name in seen:
            raise _damaged(f"two ops named {name!r}", "unique names")
        seen.add(name)


def _definition(node: Any, functions: Mapping[str, Any]) -> Any:
    """The `OpDef` of a node; None if there is none."""
    return functions.get(node.op) or op_def(node.op)


# ---- attributes ------------------------------------------------------------------------------------------------------


def _check_attributes(node: Any, definition: Any, where: str, *, placeholders: bool) -> None:
    """Of a node; in a function an attribute may stand for one of the call (`placeholders`)."""
    for name, value in node.attr.items():
        _check_value(value, f"{where}, attribute {name!r},", placeholders=placeholders)
    if definition is None:
        return
    declared = _declared(node, definition)
    for name, attribute in declared.items():
        if name in node.attr:
            _check_declared(node.attr[name], attribute, f"{where}, attribute {name!r},", placeholders=placeholders)
        elif not attribute.HasField("default_value"):
            raise _damaged(f"{where} of type {node.op} without attribute {name!r}", f"a value of kind {attribute.type}")
    if unknown := [name for name in node.attr if name not in declared and not name.startswith("_")]:
        raise _damaged(
            f"{where} of type {node.op} with attribute {min(unknown)!r}",
            f"attributes that this TensorFlow knows: {', '.join(declared) or 'none'}",
        )


def _declared(node: Any, definition: Any) -> Mapping[str, Any]:
    """Attribute -> its definition."""
    return _op_attributes(node.op) if definition is op_def(node.op) else _attributes(definition)


@cache
def _op_attributes(op: str) -> Mapping[str, Any]:
    return _attributes(op_def(op))


def _attributes(definition: Any) -> Mapping[str, Any]:
    return {attribute.name: attribute for attribute in definition.attr}


def _check_value(value: Any, where: str, *, placeholders: bool) -> None:
    """What any attribute must be, whether or not the op knows it."""
    kind = value.WhichOneof("value")
    if kind == "list":
        types, shapes, tensors = value.list.type, value.list.shape, value.list.tensor
        called = value.list.func
    else:
        types = (value.type,) if kind == "type" else ()
        shapes = (value.shape,) if kind == "shape" else ()
        tensors = (value.tensor,) if kind == "tensor" else ()
        called = (value.func,) if kind == "func" else ()
    for number in types:
        _check_type(number, where)
    for shape in shapes:
        check_shape_proto(shape, where)
    for tensor in tensors:
        _check_tensor(tensor, where)
    for function in called:
        for inner in function.attr.values():
            _check_value(inner, where, placeholders=placeholders)
    if kind is None or (kind == "placeholder" and not placeholders):
        raise _damaged(f"{where} without a value", "a value")


def _check_declared(value: Any, attribute: Any, where: str, *, placeholders: bool) -> None:
    kind, wanted = value.WhichOneof("value"), attribute.type
    if kind == "placeholder" and placeholders:
        return
    several = wanted.startswith("list(")
    field = _FIELDS.get(wanted[5:-1] if several else wanted, "")
    if several:
        held = [f.name for f, _ in value.list.ListFields()] if kind == "list" else [str(kind)]
        fits = kind == "list" and held in ([], [field])
    else:
        held, fits = [str(kind)], kind == field
    if not fits:
        raise _damaged(f"{where} of kind {' and '.join(held)}", wanted)
    values = list(getattr(value.list, field)) if several else [getattr(value, field)]
    if attribute.HasField("allowed_values"):
        allowed = getattr(attribute.allowed_values.list, field)
        if wrong := [v for v in values if v not in allowed]:
            raise _damaged(
                f"{where} of {_told(wrong[0], field)}", f"one of {', '.join(_told(a, field) for a in allowed)}"
            )
    if attribute.has_minimum and (len(values) if several else values[0]) < attribute.minimum:
        raise _damaged(f"{where} of {len(values) if several else values[0]}", f"at least {attribute.minimum}")


def _told(value: Any, field: str) -> str:
    return str(tf.dtypes.as_dtype(value).name) if field == "type" else repr(value)


@cache
def _known_type(number: int) -> bool:
    try:
        tf.dtypes.as_dtype(number)
    except TypeError:
        return False
    return True


def _check_type(number: int, where: str) -> None:
    if not _known_type(number):
        raise _damaged(f"{where} of type {number}", "the number of a type that this TensorFlow knows")


def _check_tensor(tensor: Any, where: str) -> None:
    """Refuses a `TensorProto` whose content is not that of its type and shape."""
    _check_type(tensor.dtype, where)
    dtype = tf.dtypes.as_dtype(tensor.dtype).base_dtype
    check_shape_proto(tensor.tensor_shape, where)
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.tensor_shape.unknown_rank or -1 in sizes:
        raise _damaged(f"{where} with a tensor of unknown shape", "a known shape")
    elements, element_bytes = math.prod(sizes), max(dtype.size or 1, 1)
    if elements * element_bytes > _MOST_CONSTANT_BYTES:
        raise _damaged(
            f"{where} with a tensor of shape {sizes}, type {dtype.name}", f"at most {_MOST_CONSTANT_BYTES} bytes"
        )
    held = {field.name: value for field, value in tensor.ListFields() if field.name.endswith("_val")}
    field, numbers = _VALUE_FIELDS.get(dtype, ("tensor_content", 1))
    if wrong := sorted(held.keys() - {field}):
        raise _damaged(f"{where} with a tensor of type {dtype.name} and {wrong[0]}", field)
    # The last value stands for all that follow, so that there may be fewer.
    if len(held.get(field, ())) > elements * numbers or len(held.get(field, ())) % numbers:
        raise _damaged(f"{where} with a tensor of shape {sizes} and {len(held[field])} values", f"at most {elements}")
    content = len(tensor.tensor_content)
    if content and dtype != tf.string and content != elements * element_bytes and dtype.size:
        raise _damaged(
            f"{where} with a tensor of shape {sizes}, type {dtype.name} and {content} bytes",
            f"{elements * element_bytes} bytes",
        )


# ---- inputs ----------------------------------------------------------------------------------------------------------


def _attribute(node: Any, definition: Any, name: str) -> Any:
    return node.attr[name] if name in node.attr else _declared(node, definition)[name].default_value


def _types(arguments: Iterable[Any], node: Any, definition: Any) -> list[int]:
    """Types of the inputs or outputs that a definition says a node has."""
    types: list[int] = []
    for argument in arguments:
        if argument.type_list_attr:
            kinds = list(_attribute(node, definition, argument.type_list_attr).list.type)
        else:
            kind = argument.type or _attribute(node, definition, argument.type_attr).type
            number = _attribute(node, definition, argument.number_attr).i if argument.number_attr else 1
            if not 0 <= number <= _MOST_OUTPUTS:
                raise _damaged(
                    f"op {node.name!r}, attribute {argument.number_attr!r}, of {number}", f"0 to {_MOST_OUTPUTS}"
                )
            kinds = [kind] * number
        types += [kind + _REFERENCE if argument.is_ref and kind < _REFERENCE else kind for kind in kinds]
    return types


def _outputs(node: Any, definition: Any) -> list[int] | None:
    """Types of a node's outputs; None if nothing tells."""
    return None if definition is None else _types(definition.output_arg, node, definition)


def _check_inputs(node: Any, definition: Any, outputs: Mapping[str, list[int] | None]) -> None:
    where = f"op {node.name!r}"
    data = [text for text in node.input if not text.startswith("^")]
    if any(text.startswith("^") for text in node.input[: len(data)]):
        raise _damaged(f"{where} with a control input before a data input", "data inputs first")
    wanted = None if definition is None else _types(definition.input_arg, node, definition)
    if wanted is not None and len(wanted) != len(data):
        raise _damaged(f"{where} of type {node.op} with {len(data)} inputs", str(len(wanted)))
    for position, text in enumerate(node.input):
        producer, slot = parse_input(text)
        if producer not in outputs:
            raise SourceError(f"{where} with input {text!r}, which is not in the graph", "a complete graph")
        made = outputs[producer]
        _check_slot(slot, made, f"{where} with input {text!r}")
        if slot >= 0 and made is not None and wanted is not None and not _takes(wanted[position], made[slot]):
            raise _damaged(
                f"{where} with input {text!r} of type {tf.dtypes.as_dtype(made[slot]).name}",
                tf.dtypes.as_dtype(wanted[position]).name,
            )


def _check_slot(slot: int, made: list[int] | None, where: str) -> None:
    if made is not None and slot >= len(made):
        raise _damaged(where, f"one of the {len(made)} outputs of that op")


def _takes(wanted: int, made: int) -> bool:
    """An op that takes a value takes a reference to one too, not the other way round."""
    return made == wanted or (made > _REFERENCE and made - _REFERENCE == wanted)


# ---- functions -------------------------------------------------------------------------------------------------------


def _check_function(function: Any, functions: Mapping[str, Any]) -> None:
    """A function of the library; its inputs are "argument", "op:output:number" or "^op"."""
    signature = function.signature
    inside = f"function {signature.name!r}"
    _check_signature(signature, inside)
    known = {argument.name for argument in signature.input_arg} | {node.name for node in function.node_def}
    _check_names(node.name for node in function.node_def)
    for node in function.node_def:
        where = f"op {node.name!r} of {inside}"
        _check_attributes(node, _definition(node, functions), where, placeholders=True)
        _check_names_of_inputs(node.input, known, where)
    _check_names_of_inputs(function.ret.values(), known, inside)
    _check_names_of_inputs(function.control_ret.values(), known, inside)
    if missing := {argument.name for argument in signature.output_arg} - set(function.ret):
        raise _damaged(f"{inside} without a value for its result {min(missing)!r}", "a value for each result")


def _check_signature(signature: Any, where: str) -> None:
    declared = {attribute.name for attribute in signature.attr}
    for argument in (*signature.input_arg, *signature.output_arg):
        named: Sequence[str] = [
            name for name in (argument.type_attr, argument.number_attr, argument.type_list_attr) if name
        ]
        if absent := [name for name in named if name not in declared]:
            raise _damaged(
                f"{where} with an argument whose type is attribute {absent[0]!r}", "an attribute of the function"
            )
        if not argument.type_attr and not argument.type_list_attr:
            _check_type(argument.type, f"{where}, argument {argument.name!r},")


def _check_names_of_inputs(texts: Iterable[str], known: set[str], where: str) -> None:
    for text in texts:
        found = _FUNCTION_INPUT.fullmatch(text)
        if found is None or found[1] not in known:
            raise _damaged(f"{where} with input {text[:80]!r}", "an argument or an op of the function")
