"""What goes with each variable of a split step: slots, update, sums of gradients, casts of its value."""

from __future__ import annotations

import functools

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.arrays import IntArray
from tfplace.core.graph import OpGraph
from tfplace.core.slices import PACKED
from tfplace.group.slots import readers_of, slots_of

_REDUCES = 8
"""An op that takes more than so many times the bytes that it gives belongs where they come from."""


@functools.lru_cache(maxsize=1)
def weights_of_ops(graph: OpGraph) -> IntArray:
    """[V] the variable, by the op that makes its handle, that each op which stands once goes with; else -1.

    Slots go with their weight. Of an op that several variables are made of, or that is made of several, it is the one
    that it gives most bytes, or takes most from. What takes far more than it gives, such as the square of a gradient
    for the norm of all, goes with what it takes.

    Kept, since several placers ask for one graph, and this takes a second for a large one.
    """
    assert graph.slices is not None
    slots, once = slots_of(graph), graph.slices.slice_of < 0
    weight = np.full(graph.num_ops, -1, np.int32)
    variables = [v for v in graph.variables if once[v.op]]
    bond = {int(graph.resource[v.op]): slots.get(v.op, v.op) for v in variables if graph.resource[v.op] >= 0}
    for v, resource in enumerate(graph.resource.tolist()):
        weight[v] = bond.get(resource, -1)
    for variable in variables:
        weight[variable.op] = slots.get(variable.op, variable.op)
    readers = readers_of(graph)
    size = np.zeros(graph.num_ops, np.int64)
    np.add.at(size, graph.tensor_op, graph.tensor_bytes)
    makers = [graph.tensor_op[list(tensors)] for tensors in graph.inputs]
    sizes = [graph.tensor_bytes[list(tensors)] for tensors in graph.inputs]
    taken = np.array([int(b[once[m]].sum()) if len(m) else 0 for m, b in zip(makers, sizes, strict=True)])
    reduces = taken > _REDUCES * np.maximum(size, 1)
    for v in range(graph.num_ops - 1, -1, -1):
        if weight[v] < 0 and once[v] and not reduces[v]:
            weight[v] = _heaviest([(int(weight[u]), int(size[u])) for u in readers[v] if once[u]])
    for v in range(graph.num_ops):
        if weight[v] < 0 and once[v]:
            weight[v] = _heaviest([*zip(weight[makers[v]].tolist(), sizes[v].tolist(), strict=True)])
    return weight


def packed_weights(graph: OpGraph, weight_of: IntArray) -> dict[int, int]:
    """Variable that is sent in a pack -> the first of those that packs join it with: one owner is best for them."""
    names = enumerate(zip(graph.op_names, graph.op_types, strict=True))
    packs = {v: kind for v, (name, kind) in names if name.startswith(PACKED)}
    links: dict[tuple[int, int], None] = {}  # (op of a pack, variable)
    for src, dst in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        for pack, kind, other in ((src, "SplitV", dst), (dst, "ConcatV2", src)):
            if packs.get(pack) == kind and weight_of[other] >= 0:
                links[pack, int(weight_of[other])] = None
    if not links:
        return {}
    pack, weight = np.array([*links]).T
    joined = coo_array((np.ones(len(pack), np.int8), (pack, weight)), shape=(graph.num_ops, graph.num_ops))
    label = connected_components(joined.tocsr(), directed=False)[1]
    first: dict[int, int] = {}
    return {w: first.setdefault(int(label[w]), w) for w in weight.tolist()}


def _heaviest(given: list[tuple[int, int]]) -> int:
    """The variable with most bytes, of several the first; -1 if there is none."""
    total: dict[int, int] = {}
    for variable, taken in given:
        if variable >= 0:
            total[variable] = total.get(variable, 0) + taken + 1
    return min(total, key=lambda variable: (-total[variable], variable), default=-1)
