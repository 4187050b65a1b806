"""Which ops of a step can be computed again for the backward pass, with the same results to the bit."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray, freeze
from tfplace.core.buffers import HELD_BY_VARIABLE, READS, writes_rows, writes_whole
from tfplace.core.control_flow import control_flow
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.core.op_types import of_types
from tfplace.core.passes import ahead_of_backward
from tfplace.core.xla_ops import COMPILABLE

_KEPT = frozenset({"Const", "NoOp", "ResourceGather", "RngReadAndSkip", "RngSkip", "VarIsInitializedOp", READS})
"""Constants, which stay in memory anyway, and what reads or writes state: a later read may find something else."""

_REFERENCE_VIEWS = frozenset({"Identity", "RefIdentity"})


@kept
def recomputable_ops(graph: OpGraph) -> BoolArray:
    """[V] forward ops whose results are a function of their inputs alone.

    Draws by a seed or a counter that they are given are among them, and draw the same again. Left out are reads of
    variables, draws that keep their own state, ops in loops and branches, ops that keep functions, ops that read a
    reference variable, whose memory is what is written there later, and all types that are not known to be functions.
    """
    flow = control_flow(graph)
    out: BoolArray = (
        ahead_of_backward(graph) & flow.always_ends & ~flow.in_loop & (graph.trips == 1) & (graph.resource < 0)
    )
    pure = {kind for kind in COMPILABLE - _KEPT if not (writes_rows(kind) or writes_whole(kind))}
    out &= of_types(graph, pure) & ~graph.replicable
    out[[body.op for body in graph.bodies]] = False
    references = of_types(graph, HELD_BY_VARIABLE)
    for v in np.flatnonzero(of_types(graph, _REFERENCE_VIEWS)).tolist() if references.any() else []:
        references[v] |= references[graph.tensor_op[list(graph.inputs[v])]].any()
    carries = graph.edge_tensor >= 0
    out[graph.edge_dst[carries & references[graph.edge_src]]] = False
    return freeze(out)
