"""The TensorFlow program of a step in which ops are computed again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.graph import OpGraph, Origin
from tfplace.extraction.file_source import program_origin
from tfplace.extraction.function import FunctionOrigin
from tfplace.extraction.metagraph import GraphOrigin


def with_program(graph: OpGraph, source: OpGraph) -> OpGraph:
    """A graph of `tfplace.transforms.recompute` with the program that it is of, which can be run.

    Args:
      graph: the graph.
      source: what it was made of; without a program, there is none.
    """
    return replace(graph, origin=_origin(graph, program_origin(source)))


def _origin(graph: OpGraph, origin: Origin | None) -> Origin | None:
    if isinstance(origin, FunctionOrigin):
        flat = replace(origin.flat, graph_def=_graph_def(graph, origin.flat.graph_def))
        return replace(origin, flat=flat, description=_described(origin))
    if isinstance(origin, GraphOrigin):
        return replace(origin, graph_def=_graph_def(graph, origin.graph_def), description=_described(origin))
    return None


def _described(origin: Origin) -> str:
    return f"{origin.description}, rematerialized"


def _graph_def(graph: OpGraph, source: Any) -> Any:
    """The nodes of the source and of its copies, with inputs as the graph has them."""
    assert graph.recomputes is not None
    out = tf.compat.v1.GraphDef()
    out.CopyFrom(source)
    nodes = {node.name: node for node in out.node}
    for v in np.flatnonzero(graph.recomputes >= 0).tolist():
        node = out.node.add()
        node.CopyFrom(nodes[graph.op_names[graph.recomputes[v]]])
        node.name = graph.op_names[v]
        nodes[node.name] = node
    rewired = np.zeros(graph.num_ops, np.bool_)
    rewired[graph.edge_dst[graph.recomputes[graph.edge_src] >= 0]] = True
    controls: dict[int, list[str]] = {}
    control = graph.edge_tensor < 0
    for u, v in zip(graph.edge_src[control].tolist(), graph.edge_dst[control].tolist(), strict=True):
        controls.setdefault(v, []).append(f"^{graph.op_names[u]}")
    for v in np.flatnonzero(rewired | (graph.recomputes >= 0)).tolist():
        node = nodes[graph.op_names[v]]
        del node.input[:]
        node.input.extend(_tensor(graph, t) for t in graph.inputs[v])
        node.input.extend(controls.get(v, ()))
    return out


def _tensor(graph: OpGraph, t: int) -> str:
    name, slot = graph.op_names[graph.tensor_op[t]], int(graph.tensor_slot[t])
    return f"{name}:{slot}" if slot else name
