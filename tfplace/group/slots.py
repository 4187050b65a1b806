"""Which variables are the optimizer's, and of which weight."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from tfplace.core.buffers import variable_of, writes_rows, writes_whole
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept

_MOST_OPS = 500
"""What follows from an optimizer's state is a few ops for each weight; what is followed further is something else."""


def slots_of(graph: OpGraph) -> dict[int, int]:
    """Slot -> weight, both by the op that makes the handle.

    A slot is a variable that is not trained, is written, has the size of a weight, and from whose value that weight is
    written. A moving mean, which is written but not read for that, is none; nor is a step counter, for its size.
    """
    handle = variable_of(graph)
    size = {v.op: v.size_bytes for v in graph.variables}
    trained = {v.op for v in graph.variables if v.trainable}
    sizes = {size[op] for op in trained}
    written: dict[int, list[int]] = {}  # op -> variables that it writes
    for v, kind in enumerate(graph.op_types):
        if writes_whole(kind) or writes_rows(kind):
            written[v] = [int(handle[t]) for t in graph.inputs[v] if handle[t] >= 0]
    targets = {op for ops in written.values() for op in ops}
    after = readers_of(graph)
    out = {}
    for variable in graph.variables:
        if variable.trainable or variable.size_bytes not in sizes or variable.op not in targets:
            continue
        alike = {op for op in trained if size[op] == variable.size_bytes}
        weight = _written_from(variable.op, alike, after, written)
        if weight is not None:
            out[variable.op] = weight
    return out


@kept
def readers_of(graph: OpGraph) -> Sequence[Sequence[int]]:
    """[V] ops that read a tensor of each op."""
    data = np.flatnonzero((graph.edge_tensor >= 0) & ~graph.edge_back)
    out: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for src, dst in zip(graph.edge_src[data].tolist(), graph.edge_dst[data].tolist(), strict=True):
        out[src].append(dst)
    return out


def _written_from(
    slot: int, weights: set[int], after: Sequence[Sequence[int]], written: dict[int, list[int]]
) -> int | None:
    """The weight that is written from a slot's value; the nearest, if there are several."""
    seen, queue = {slot}, deque([slot])
    while queue and len(seen) < _MOST_OPS:
        v = queue.popleft()
        for weight in written.get(v, ()):
            if weight in weights:
                return weight
        queue.extend(u for u in dict.fromkeys(after[v]) if u not in seen)
        seen.update(after[v])
    return None
