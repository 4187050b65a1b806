"""Loops whose turns compute one after another anyway, as those of recurrent networks do.

TensorFlow begins up to `parallel_iterations` turns of a loop at once, 10 by default and 32 in Keras. Where each turn
needs what the one before computed, that saves no time: but products for gradients, which wait for nothing, are made
for many turns before the first is added up, each as large as a weight.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.graph import OpGraph
from tfplace.core.op_types import of_types
from tfplace.cost.flops import rule_of

_HEAVY = frozenset({"conv", "matmul"})


def serial_enters(graph: OpGraph) -> tuple[str, ...]:
    """The Enter ops of loops with a product or convolution in what each turn gives the next.

    Turns of other loops, such as those of `tf.map_fn`, stay as the model wants them: on many cores they run side by
    side.
    """
    if not graph.edge_back.any():
        return ()
    ones = np.ones(graph.num_edges, np.int8)
    edges = coo_array((ones, (graph.edge_src, graph.edge_dst)), shape=(graph.num_ops, graph.num_ops))
    circle = connected_components(edges.tocsr(), connection="strong")[1]
    alone = np.bincount(circle)[circle] == 1
    heavy = np.unique(circle[of_types(graph, lambda kind: rule_of(kind)[0] in _HEAVY) & ~alone])
    frames = set()
    for merge in np.flatnonzero(np.isin(circle, heavy) & of_types(graph, {"Merge"})).tolist():
        before = [int(graph.tensor_op[t]) for t in graph.inputs[merge]]
        frames |= {_frame(graph, v) for v in before if graph.op_types[v] == "Enter"}
    enters = np.flatnonzero(of_types(graph, {"Enter"})).tolist()
    return tuple(graph.op_names[v] for v in enters if _frame(graph, v) in frames)


def _frame(graph: OpGraph, enter: int) -> str:
    return str(graph.op_attrs[enter].get("frame_name"))
