"""Which tensors of a step are the same in every step, as they depend on shapes and constants alone."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray
from tfplace.core.graph import OpGraph
from tfplace.core.xla_ops import COMPILABLE, LISTS, SHAPES
from tfplace.execution.while_loops import LOOP_OPS


def static_tensors(graph: OpGraph) -> BoolArray:
    """[T] what depends on shapes and constants alone; of loops what no turn changes."""
    out = np.zeros(len(graph.tensor_op), bool)
    for v, kind in enumerate(graph.op_types):
        inputs = list(graph.inputs[v])
        if kind == "Merge":
            known = _is_kept(graph, v) and bool(out[inputs[0]])
        elif kind == "Switch":
            known = bool(out[inputs[:1]].any())
        else:
            depends = kind in COMPILABLE or kind in LISTS or kind in LOOP_OPS  # and not on a state, as draws do
            known = kind == "Const" or kind in SHAPES or (depends and len(inputs) > 0 and bool(out[inputs].all()))
        out[graph.op_tensors[v] : graph.op_tensors[v + 1]] = known
    return out


def _is_kept(graph: OpGraph, merge: int) -> bool:
    """Whether a loop variable is given on from turn to turn as it is."""
    if len(graph.inputs[merge]) != 2:
        return False
    at = int(graph.tensor_op[graph.inputs[merge][1]])
    while graph.op_types[at] in ("Identity", "NextIteration"):
        at = int(graph.tensor_op[graph.inputs[at][0]])
    return graph.op_types[at] == "Switch" and int(graph.tensor_op[graph.inputs[at][0]]) == merge
