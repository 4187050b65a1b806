"""What a split step is divided into, so that devices can run it phase by phase.

A part is the forward or the backward pass of one slice. On a device, phases are parts that run one after the other: an
op of a phase starts only when all ops of the phases before it, on the same device, have finished. Sums of gradients,
updates and all else that stands once run at any time. The rules by which parts become phases are in `event.py`; they
depend on the placement:

- "gpipe": F0 F1 ... B0 B1 ... (Y. Huang et al.: GPipe, NeurIPS 2019, figure 2c. Departure: backward in the order of the
  slices.)
- "1f1b": as many forward passes as there are stages from this one on, then one backward, one forward in turn
  (D. Narayanan et al.: Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021, figure 2b; S. Fan et al.: DAPPLE,
  PPoPP 2021, section 3.1). Departure: stages are what the placement says, and each slice may have its own.
- "by_use": the first forward pass alone, in stretches, each with the reads of the variables that the stretch a third of
  the pass later needs. What is read first is sent first, so that slices elsewhere need not wait for variables that are
  used last (S. H. Hashemi et al.: TicTac, MLSys 2019, whose order of transfers is enforced at the sender as well). The
  other two do that too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.buffers import writes_rows, writes_whole
from tfplace.core.graph import OpGraph
from tfplace.core.op_types import of_types
from tfplace.core.problem import Problem
from tfplace.group.forward import FORWARD, passes_of
from tfplace.group.slots import readers_of

GROUPS = 24
"""Stretches of a forward pass. More of them order reads more finely, and let ops of fewer layers run side by side."""


class Parts(NamedTuple):
    """See `Program`.

    Attributes:
      part: [V].
      group: [V].
    """

    part: IntArray
    group: IntArray


def find_parts(problem: Problem) -> Parts:
    """The parts of a step, and the stretches of its forward pass; of a whole step none."""
    graph = problem.graph
    none: IntArray = np.full(graph.num_ops, -1, np.int32)
    if graph.slices is None:
        return Parts(none, none.copy())
    slice_of = graph.slices.slice_of
    backward = passes_of(problem) != FORWARD
    own = (slice_of >= 0) & ~graph.replicable & ~_after_updates(graph)
    part = np.where(own, 2 * slice_of + backward, -1).astype(np.int32)
    return Parts(part, _groups(problem, part))


def _groups(problem: Problem, part: IntArray) -> IntArray:
    """[V] the stretch of each forward op: equal shares of the seconds; and of what reads variables, its first use."""
    graph = problem.graph
    assert graph.slices is not None
    out = np.full(graph.num_ops, -1, np.int32)
    forward = (part >= 0) & (part % 2 == 0)
    seconds = np.where(np.isfinite(problem.costs.compute_s), problem.costs.compute_s, 0.0).max(axis=1)
    of: dict[str, int] = {}
    for k in range(len(graph.slices.sizes)):
        ops = np.flatnonzero(forward & (part == 2 * k))
        done = np.cumsum(seconds[ops])
        whole_s = float(done[-1]) if len(ops) else 0.0
        own = np.minimum(GROUPS * done / max(whole_s, 1e-12), GROUPS - 1).astype(int)
        reached = 0
        for v, group in zip(ops.tolist(), own, strict=True):
            reached = max(reached, of.setdefault(graph.slices.original[v], int(group)))  # never back, in any slice
            out[v] = reached
    early, readers = _early(graph), readers_of(graph)
    for v in np.flatnonzero(early)[::-1].tolist():
        out[v] = min((int(out[u]) for u in readers[v] if out[u] >= 0), default=-1)
    sources = np.ones(graph.num_ops, np.bool_)
    sources[graph.edge_dst] = False
    out[(early & sources) | graph.replicable] = -1  # handles and constants cost nothing
    return out


def _after_updates(graph: OpGraph) -> BoolArray:
    """[V] what comes after a write that all slices come before, such as results that wait for the update."""
    assert graph.slices is not None
    of_slices = graph.slices.slice_of >= 0
    writes = of_types(graph, lambda kind: writes_whole(kind) or writes_rows(kind)) & ~of_slices
    edges = np.flatnonzero(~graph.edge_back)
    pairs = [(int(graph.edge_src[e]), int(graph.edge_dst[e])) for e in edges[np.argsort(graph.edge_dst[edges])]]
    out = np.zeros(graph.num_ops, np.bool_)
    for u, v in pairs:  # in the order of v, so that u is done
        of_slices[v] |= of_slices[u]
        out[v] |= out[u] or (writes[u] and of_slices[u])
    return out


def _early(graph: OpGraph) -> BoolArray:
    """[V] what stands once and needs nothing of the step's inputs, such as reads of variables and their casts."""
    assert graph.slices is not None
    handles = {variable.op for variable in graph.variables}
    early = graph.slices.slice_of < 0
    for v in np.flatnonzero(early).tolist():
        early[v] = graph.op_types[v] not in ("Placeholder", "PlaceholderWithDefault") or v in handles
    edges = ~graph.edge_back
    src, dst = graph.edge_src[edges], graph.edge_dst[edges]
    for u, v in zip(src[np.argsort(dst, kind="stable")].tolist(), np.sort(dst, kind="stable").tolist(), strict=True):
        early[v] &= early[u]
    return early
