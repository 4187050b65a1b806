"""Clusters as calls: a graph in which each cluster is one call of a function that XLA compiles."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfplace.execution.clusters import Cluster
from tfplace.extraction.nodes import parse_input

_NAMES_ONLY = ("_class", "_output_shapes")
"""Attributes that name other nodes, or say what XLA finds out."""


@dataclass(frozen=True)
class CallGraph:
    """A graph with calls in place of clusters.

    Attributes:
      graph_def: with a library of the clusters' functions.
      calls: op -> the call that it is in; of a constant that became a part of several, one of those.
      tensors: "op:k" of an op in a cluster -> the call's output "call:k"; of those that are read outside.
      numbered: function -> number of an op in it -> the ops that it stands for, one for each call.
    """

    graph_def: Any
    calls: Mapping[str, str]
    tensors: Mapping[str, str]
    numbered: Mapping[str, Mapping[str, list[str]]]

    def tensor(self, name: str) -> str:
        """The tensor that is read now in place of "op:k"."""
        return self.tensors.get(name, name)

    def ran(self, nodes: Mapping[str, str]) -> dict[str, str]:
        """Op -> device, from that of nodes of the graph: ops in a call are where the call is."""
        return {**nodes, **{op: nodes[call] for op, call in self.calls.items() if call in nodes}}


def with_calls(graph: Any, clusters: Sequence[Cluster], kept: Sequence[str]) -> CallGraph:
    """Puts each cluster into a function, and a call of it in its place.

    A function is named by what it does: ops are numbered, not named, so that equal clusters, be it of two slices or of
    two placements, are one function, which a device compiles once. A constant that a cluster reads becomes a part of
    it, as XLA has to know sizes and axes when it compiles.

    Args:
      graph: a TensorFlow graph whose ops have devices.
      clusters: parts of its ops; no cluster may wait for itself.
      kept: names of tensors "op:k" that are read from outside of the graph.
    """
    graph_def = graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    calls = {op: cluster.name for cluster in clusters for op in cluster.ops}
    outputs = _outputs(graph_def, calls, kept)
    tensors = {name: f"{call}:{k}" for call, names in outputs.items() for k, name in enumerate(names)}
    out = tf.compat.v1.GraphDef(versions=graph_def.versions)
    out.library.CopyFrom(graph_def.library)
    functions: dict[str, Any] = {}
    constants: dict[str, str] = {}
    numbered: dict[str, dict[str, list[str]]] = {}
    for cluster in clusters:
        function = _Function(graph, nodes, cluster, calls, outputs.get(cluster.name, ()))
        functions.setdefault(function.name, function.definition)
        constants |= dict.fromkeys(function.constants, cluster.name)
        for op, number in function.number.items():
            numbered.setdefault(function.name, {}).setdefault(number, []).append(op)
        out.node.append(_call(cluster, function, calls, tensors))
    out.library.function.extend(functions.values())
    for node in graph_def.node:
        if node.name not in calls:
            new = out.node.add()
            new.CopyFrom(node)
            _redirect(new, calls, tensors)
    return CallGraph(out, constants | calls, tensors, numbered)


def graph_with_calls(graph: Any, clusters: Sequence[Cluster], kept: Sequence[str]) -> tuple[Any, CallGraph]:
    """A TensorFlow graph for a session with calls in place of clusters; see `with_calls`."""
    called = with_calls(graph, clusters, kept)
    out = tf.Graph()
    with out.as_default():
        tf.import_graph_def(called.graph_def, name="")
    return out, called


def _outputs(graph_def: Any, calls: Mapping[str, str], kept: Sequence[str]) -> dict[str, list[str]]:
    """Call -> tensors "op:k" of its ops that others read, in the order of the ops that read them."""
    out: dict[str, dict[str, None]] = {}
    for name in kept:
        op, k = parse_input(name)
        if op in calls:
            out.setdefault(calls[op], {})[f"{op}:{k}"] = None
    for node in graph_def.node:
        for one in node.input:
            op, k = parse_input(one)
            if k >= 0 and op in calls and calls[op] != calls.get(node.name):
                out.setdefault(calls[op], {})[f"{op}:{k}"] = None
    return {call: list(names) for call, names in out.items()}


class _Function:
    """The function of a cluster.

    Attributes:
      name: by its content.
      definition: the `FunctionDef`.
      inputs: tensor "op:k" that it is given -> its number.
      constants: that it has copies of.
      number: op -> its name in the function.
      controls: ops outside that its ops wait for.
      types: (types of inputs, types of outputs), as enums.
    """

    def __init__(
        self, graph: Any, nodes: Mapping[str, Any], cluster: Cluster, calls: Mapping[str, str], outputs: Sequence[str]
    ) -> None:
        self._graph = graph
        self.definition = tf.compat.v1.GraphDef().library.function.add()
        self.inputs: dict[str, int] = {}
        self.controls: dict[str, None] = {}
        self.constants: dict[str, None] = {}
        self.number: dict[str, str] = {}
        signature = self.definition.signature
        for name in cluster.ops:
            self._add(nodes, name, calls, cluster.name)
        for k, name in enumerate(outputs):
            op, slot = parse_input(name)
            signature.output_arg.add(name=f"r{k}", type=self._type(name))
            self.definition.ret[f"r{k}"] = self._inside(op, slot)
        for name, k in self.inputs.items():
            signature.input_arg.add(name=f"a{k}", type=self._type(name))
        for name in cluster.ops:
            op = graph.get_operation_by_name(name)
            if op.op_def.is_stateful and op.type != "ReadVariableOp":
                self.definition.control_ret[self.number[name]] = self.number[name]
                signature.control_output.append(self.number[name])
        signature.is_stateful = True
        self.definition.attr["_XlaMustCompile"].b = True
        content = self.definition.SerializeToString(deterministic=True)
        signature.name = self.name = f"tfplace_{hashlib.sha256(content).hexdigest()[:24]}"
        self.types = ([arg.type for arg in signature.input_arg], [arg.type for arg in signature.output_arg])

    def _add(self, nodes: Mapping[str, Any], name: str, calls: Mapping[str, str], own: str) -> None:
        inputs: list[str] = []
        controls: dict[str, None] = {}
        for one in nodes[name].input:
            op, k = parse_input(one)
            is_own, is_constant = calls.get(op) == own, nodes[op].op == "Const"
            if k >= 0 and is_own:
                inputs.append(self._inside(op, k))
            elif k >= 0 and is_constant:
                inputs.append(self._constant(nodes[op]))
            elif k >= 0:
                inputs.append(f"a{self.inputs.setdefault(f'{op}:{k}', len(self.inputs))}")
            if k < 0 or (is_constant and not is_own):
                for before in _awaited(nodes, op) if not is_own else (op,):
                    if calls.get(before) == own:
                        controls[f"^{self.number[before]}"] = None
                    else:
                        self.controls[before] = None
        node = self.definition.node_def.add()
        node.CopyFrom(nodes[name])
        node.name = self.number[name] = f"n{len(self.number)}"
        node.device = ""
        for attribute in _NAMES_ONLY:
            node.attr.pop(attribute, None)
        del node.input[:]
        node.input.extend([*inputs, *controls])

    def _constant(self, node: Any) -> str:
        """The output of a copy of a constant."""
        if node.name not in self.number:
            self.constants[node.name] = None
            self.number[node.name] = f"n{len(self.number)}"
            copy = self.definition.node_def.add(name=self.number[node.name], op="Const")
            copy.attr["dtype"].CopyFrom(node.attr["dtype"])
            copy.attr["value"].CopyFrom(node.attr["value"])
        return f"{self.number[node.name]}:output:0"

    def _inside(self, op: str, k: int) -> str:
        """An output of an op of the function, as functions write it: by the output's name."""
        made = self._graph.get_operation_by_name(op)
        for arg in made.op_def.output_arg:
            if arg.type_list_attr:
                count = len(made.get_attr(arg.type_list_attr))
            else:
                count = int(made.get_attr(arg.number_attr)) if arg.number_attr else 1
            if k < count:
                return f"{self.number[op]}:{arg.name}:{k}"
            k -= count
        raise AssertionError(f"{op} has no such output")

    def _type(self, name: str) -> int:
        kind: int = self._graph.get_tensor_by_name(name).dtype.base_dtype.as_datatype_enum
        return kind


def _awaited(nodes: Mapping[str, Any], op: str) -> list[str]:
    """What an op waits for that waits for `op`: of a constant what that waits for, since it is copied."""
    if nodes[op].op != "Const":
        return [op]
    return [before for one in nodes[op].input for before in _awaited(nodes, parse_input(one)[0])]


def _call(cluster: Cluster, function: _Function, calls: Mapping[str, str], tensors: Mapping[str, str]) -> Any:
    node = tf.compat.v1.NodeDef(name=cluster.name, op="StatefulPartitionedCall", device=cluster.device)
    node.input.extend(tensors.get(name, name).removesuffix(":0") for name in function.inputs)
    node.input.extend(dict.fromkeys(f"^{calls.get(op, op)}" for op in function.controls))
    node.attr["Tin"].list.type.extend(function.types[0])
    node.attr["Tout"].list.type.extend(function.types[1])
    node.attr["f"].func.name = function.name
    node.attr["_XlaMustCompile"].b = True
    return node


def _redirect(node: Any, calls: Mapping[str, str], tensors: Mapping[str, str]) -> None:
    """Has a node read and wait for calls in place of what is in them."""
    inputs: list[str] = []
    controls: dict[str, None] = {}
    for one in node.input:
        op, k = parse_input(one)
        if k < 0:
            controls[f"^{calls.get(op, op)}"] = None
        else:
            inputs.append(tensors[f"{op}:{k}"].removesuffix(":0") if op in calls else one)
    del node.input[:]
    node.input.extend([*inputs, *controls])
