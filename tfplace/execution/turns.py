"""How many turns of a loop run at once where they compute one after another, as those of recurrent networks do.

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

_DEFAULT = 10
"""Turns at once of an Enter op that does not say (`parallel_iterations` of `tf.raw_ops.Enter`)."""


def turns_at_once(graph: OpGraph) -> dict[str, int]:
    """Enter op -> turns that run at once, of loops with products or convolutions in what each turn gives the next.

    There are as many turns as there are such recurrences, but no more than the model allows: the second of two layers
    in one loop computes its turn while the first begins the next. Other loops, such as those of `tf.map_fn`, are not
    among them: their turns run side by side, as the model wants them.
    """
    if not graph.edge_back.any():
        return {}
    ones = np.ones(graph.num_edges, np.int8)
    edges = coo_array((ones, (graph.edge_src, graph.edge_dst)), shape=(graph.num_ops, graph.num_ops))
    cycle = connected_components(edges.tocsr(), connection="strong")[1]
    alone = np.bincount(cycle)[cycle] == 1
    heavy = np.unique(cycle[of_types(graph, lambda kind: rule_of(kind)[0] in _HEAVY) & ~alone])
    recurrences: dict[str, set[int]] = {}
    for merge in np.flatnonzero(np.isin(cycle, heavy) & of_types(graph, {"Merge"})).tolist():
        for before in (int(graph.tensor_op[t]) for t in graph.inputs[merge]):
            if graph.op_types[before] == "Enter":
                recurrences.setdefault(_frame(graph, before), set()).add(int(cycle[merge]))
    counts = {frame: len(cycles) for frame, cycles in recurrences.items()}
    enters = [v for v in np.flatnonzero(of_types(graph, {"Enter"})).tolist() if _frame(graph, v) in counts]
    return {graph.op_names[v]: min(counts[_frame(graph, v)], _allowed(graph, v)) for v in enters}


def _frame(graph: OpGraph, enter: int) -> str:
    return str(graph.op_attrs[enter].get("frame_name"))


def _allowed(graph: OpGraph, enter: int) -> int:
    """Turns at once that the model allows."""
    allowed = graph.op_attrs[enter].get("parallel_iterations")
    return allowed if isinstance(allowed, int) else _DEFAULT
