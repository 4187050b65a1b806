"""Functions written from ops of a graph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfplace.core.xla_ops import EMPTY_LISTS
from tfplace.execution.while_loops import WhileLoop
from tfplace.extraction.nodes import parse_input

_NAMES_ONLY = ("_class", "_output_shapes")
"""Attributes that name other nodes, or say what XLA finds out."""


def is_copied(nodes: Mapping[str, Any], op: str) -> bool:
    """Whether a function has a copy of an op instead of its result as an input: a constant, or a list without tensors.

    XLA has to know sizes and axes when it compiles, and no list enters a function.
    """
    if nodes[op].op == "Const":
        return True
    read = [parse_input(one) for one in nodes[op].input]
    return nodes[op].op in EMPTY_LISTS and all(nodes[u].op == "Const" for u, k in read if k >= 0)


class FunctionWriter:
    """Writes a function op by op.

    Ops are numbered, not named, and the function is named by its content, so that equal functions are one.

    Args:
      graph: the TensorFlow graph whose ops are written.
      nodes: its nodes, by name.

    Attributes:
      definition: the `FunctionDef`.
      inputs: tensor "op:k" that the function is given -> its number.
      copies: constants and empty lists that it has copies of.
      number: op -> its name in the function.
      parts: functions that it calls, each with the numbers of its ops.
    """

    def __init__(self, graph: Any, nodes: Mapping[str, Any]) -> None:
        self._graph = graph
        self._nodes = nodes
        self._known: dict[str, str] = {}  # tensor "op:k" -> what it is in the function
        self.definition = tf.compat.v1.GraphDef().library.function.add()
        self.inputs: dict[str, int] = {}
        self.copies: dict[str, None] = {}
        self.number: dict[str, str] = {}
        self.parts: list[tuple[Any, Mapping[str, str]]] = []

    def give(self, tensor: str) -> None:
        """Makes a tensor the function's next input."""
        self._known[tensor] = f"a{self.inputs.setdefault(tensor, len(self.inputs))}"

    def read(self, op: str, k: int) -> str:
        """A tensor as the function's ops read it; one that it does not have becomes an input, or is copied."""
        tensor = f"{op}:{k}"
        if tensor not in self._known:
            if op in self.number:
                self._known[tensor] = f"{self.number[op]}:{self._output(op, k)}"
            elif is_copied(self._nodes, op):
                self.copies[op] = None
                self._known[tensor] = f"{self._write(op)}:{self._output(op, k)}"
            else:
                self.give(tensor)
        return self._known[tensor]

    def add(self, op: str, controls: Sequence[str] = ()) -> None:
        """Writes an op, with the ops of the function that it waits for."""
        self.number[op] = self._write(op, controls)

    def add_loop(self, loop: WhileLoop, controls: Sequence[str] = ()) -> None:
        """Writes a loop as one op."""
        inputs = [self.read(*parse_input(self._nodes[enter].input[0])) for enter in loop.enters]
        node = self.definition.node_def.add(name=f"n{len(self.definition.node_def)}", op="While")
        node.input.extend([*inputs, *dict.fromkeys(f"^{self.number[before]}" for before in controls)])
        node.attr["T"].list.type.extend(self._type(f"{enter}:0") for enter in loop.enters)
        condition = self._turn(loop, [one.merge for one in loop.variables], 0, [loop.condition])
        body = self._turn(loop, [one.switch for one in loop.variables], 1, [one.next for one in loop.variables])
        node.attr["cond"].func.name, node.attr["body"].func.name = condition, body
        for i, one in enumerate(loop.variables):
            if one.exit is not None:
                self.number[one.exit] = node.name
                self._known[f"{one.exit}:0"] = f"{node.name}:output:{i}"

    def _turn(self, loop: WhileLoop, values: Sequence[str], k: int, ends: Sequence[str]) -> str:
        """Name of the condition or the body of a loop: from output k of `values` to what `ends` are given."""
        part = FunctionWriter(self._graph, self._nodes)
        for tensor in [*(f"{value}:{k}" for value in values), *(f"{enter}:0" for enter in loop.invariants)]:
            part.give(tensor)
        outputs = [parse_input(self._nodes[end].input[0]) for end in ends]
        for op, _ in outputs:
            part._add_all(op)
        results = [part.read(*output) for output in outputs]
        types = [self._type(f"{op}:{slot}") for op, slot in outputs]
        if k:  # a body gives back all that it is given
            results += [part.read(enter, 0) for enter in loop.invariants]
            types += [self._type(f"{enter}:0") for enter in loop.invariants]
        name = part.finish(results, types)
        self.parts += [*part.parts, (part.definition, part.number)]
        return name

    def _add_all(self, op: str) -> None:
        """Writes an op after all that it reads and that the function does not have yet."""
        given = {parse_input(tensor)[0] for tensor in self.inputs}
        todo = [op]
        while todo:
            at = todo[-1]
            if at in given or at in self.number or is_copied(self._nodes, at):
                todo.pop()
                continue
            before = [parse_input(one)[0] for one in self._nodes[at].input if not one.startswith("^")]
            missing = [u for u in before if not (u in given or u in self.number or is_copied(self._nodes, u))]
            if missing:
                todo += missing
            else:
                self.add(at)

    def finish(
        self, results: Sequence[str], types: Sequence[int], *, always: Sequence[str] = (), compiled: bool = False
    ) -> str:
        """Gives the function its signature, and returns its name.

        Args:
          results: outputs, as `read` gives them.
          types: theirs.
          always: ops that must run even if no result needs them.
          compiled: whether XLA compiles it.
        """
        signature = self.definition.signature
        for tensor, k in self.inputs.items():
            signature.input_arg.add(name=f"a{k}", type=self._type(tensor))
        for k, (result, kind) in enumerate(zip(results, types, strict=True)):
            signature.output_arg.add(name=f"r{k}", type=kind)
            self.definition.ret[f"r{k}"] = result
        for op in always:
            self.definition.control_ret[self.number[op]] = self.number[op]
            signature.control_output.append(self.number[op])
        signature.is_stateful = True
        if compiled:
            self.definition.attr["_XlaMustCompile"].b = True
        content = self.definition.SerializeToString(deterministic=True)
        signature.name = f"tfplace_{hashlib.sha256(content).hexdigest()[:24]}"
        name: str = signature.name
        return name

    def types_of(self, tensors: Sequence[str]) -> list[int]:
        """Types of tensors "op:k", as enums."""
        return [self._type(tensor) for tensor in tensors]

    def _write(self, op: str, controls: Sequence[str] = ()) -> str:
        """The new name of an op."""
        inputs = [self.read(*parse_input(one)) for one in self._nodes[op].input if not one.startswith("^")]
        node = self.definition.node_def.add()
        node.CopyFrom(self._nodes[op])
        node.name = f"n{len(self.definition.node_def) - 1}"
        node.device = ""
        node.ClearField("experimental_debug_info")  # which has names
        for attribute in _NAMES_ONLY:
            node.attr.pop(attribute, None)
        del node.input[:]
        node.input.extend([*inputs, *dict.fromkeys(f"^{self.number[before]}" for before in controls)])
        name: str = node.name
        return name

    def _output(self, op: str, k: int) -> str:
        """Output k as functions write it: by the name of what the op gives."""
        made = self._graph.get_operation_by_name(op)
        for arg in made.op_def.output_arg:
            if arg.type_list_attr:
                count = len(made.get_attr(arg.type_list_attr))
            else:
                count = int(made.get_attr(arg.number_attr)) if arg.number_attr else 1
            if k < count:
                return f"{arg.name}:{k}"
            k -= count
        raise AssertionError(f"{op} has no such output")

    def _type(self, tensor: str) -> int:
        kind: int = self._graph.get_tensor_by_name(tensor).dtype.base_dtype.as_datatype_enum
        return kind
