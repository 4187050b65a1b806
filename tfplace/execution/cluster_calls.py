"""Clusters as calls: a graph in which each cluster is one call of a function that XLA compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfplace.execution.clusters import Cluster
from tfplace.execution.function_def import FunctionWriter, is_copied
from tfplace.extraction.nodes import parse_input


@dataclass(frozen=True)
class CallGraph:
    """A graph with calls in place of clusters.

    Attributes:
      graph_def: with a library of the clusters' functions.
      calls: op -> the call that it is in.
      copies: constant or empty list -> the calls that have a copy.
      tensors: "op:k" of an op in a cluster -> the call's output "call:k"; of those that are read outside.
      numbered: function -> number of an op in it -> the ops that it stands for, one for each call.
    """

    graph_def: Any
    calls: Mapping[str, str]
    copies: Mapping[str, Sequence[str]]
    tensors: Mapping[str, str]
    numbered: Mapping[str, Mapping[str, list[str]]]

    def tensor(self, name: str) -> str:
        """The tensor that is read now in place of "op:k"."""
        return self.tensors.get(name, name)

    def ran(self, nodes: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
        """Op -> device, from that of nodes of the graph: ops in a call are where the call is.

        Of what was copied to several devices that counts where it was asked to be, if it was there at all.
        """
        out = {**nodes, **{op: nodes[call] for op, call in self.calls.items() if call in nodes}}
        for op, calls in self.copies.items():
            devices = dict.fromkeys(nodes[call] for call in calls if call in nodes)
            if devices and op not in nodes:
                out[op] = asked[op] if asked.get(op) in devices else next(iter(devices))
        return out


def with_calls(graph: Any, clusters: Sequence[Cluster], kept: Sequence[str]) -> CallGraph:
    """Puts each cluster into a function, and a call of it in its place.

    A function is named by what it does: ops are numbered, not named, so that equal clusters, be it of two slices or of
    two placements, are one function, which a device compiles once.

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
    copies: dict[str, list[str]] = {}
    numbered: dict[str, dict[str, list[str]]] = {}
    for cluster in clusters:
        function = _function(graph, nodes, cluster, calls, outputs.get(cluster.name, ()))
        for op in function.writer.copies:
            copies.setdefault(op, []).append(cluster.name)
        for definition, numbers in (*function.writer.parts, (function.writer.definition, function.writer.number)):
            functions.setdefault(definition.signature.name, definition)
            of_ops = numbered.setdefault(definition.signature.name, {})
            for op, number in numbers.items():
                of_ops.setdefault(number, []).append(op)
        out.node.append(_call(cluster, function, calls, tensors))
    out.library.function.extend(functions.values())
    for node in graph_def.node:
        if node.name not in calls:
            new = out.node.add()
            new.CopyFrom(node)
            _redirect(new, calls, tensors)
    return CallGraph(out, calls, copies, tensors, numbered)


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


@dataclass(frozen=True)
class _Function:
    """The function of a cluster.

    Attributes:
      name: by its content.
      writer: what has written it.
      controls: ops outside that its ops wait for.
      types: (types of inputs, types of outputs), as enums.
    """

    name: str
    writer: FunctionWriter
    controls: tuple[str, ...]
    types: tuple[list[int], list[int]]


def _function(
    graph: Any, nodes: Mapping[str, Any], cluster: Cluster, calls: Mapping[str, str], outputs: Sequence[str]
) -> _Function:
    writer = FunctionWriter(graph, nodes)
    outside: dict[str, None] = {}

    def controls(ops: Sequence[str]) -> list[str]:
        """Ops of the cluster that these wait for; those outside are noted."""
        waited = [before for op in ops for before in _waited_for(nodes, op, calls)]
        outside.update(dict.fromkeys(before for before in waited if calls.get(before) != cluster.name))
        return [before for before in waited if calls.get(before) == cluster.name]

    loop_of = {op: loop for loop in cluster.loops for op in loop.ops}
    for op in cluster.ops:
        loop = loop_of.get(op)
        if loop is None:
            writer.add(op, controls([op]))
        elif op == loop.ops[0]:
            writer.add_loop(loop, controls(loop.enters))
    always = [op for op in cluster.ops if op not in loop_of and _must_run(graph.get_operation_by_name(op))]
    results = [writer.read(*parse_input(name)) for name in outputs]
    types = writer.types_of(outputs)
    name = writer.finish(results, types, always=always, compiled=True)
    return _Function(name, writer, tuple(outside), (writer.types_of(list(writer.inputs)), types))


def _must_run(op: Any) -> bool:
    return bool(op.op_def.is_stateful) and op.type != "ReadVariableOp"


def _waited_for(nodes: Mapping[str, Any], op: str, calls: Mapping[str, str]) -> list[str]:
    """What an op waits for without reading it: a constant that is copied is not, but what it waits for is."""
    out = []
    for one in nodes[op].input:
        before, k = parse_input(one)
        if is_copied(nodes, before) and (op not in calls or calls.get(before) != calls[op]):
            out += _waited_for(nodes, before, calls)
        elif k < 0:
            out.append(before)
    return out


def _call(cluster: Cluster, function: _Function, calls: Mapping[str, str], tensors: Mapping[str, str]) -> Any:
    node = tf.compat.v1.NodeDef(name=cluster.name, op="StatefulPartitionedCall", device=cluster.device)
    node.input.extend(tensors.get(name, name).removesuffix(":0") for name in function.writer.inputs)
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
