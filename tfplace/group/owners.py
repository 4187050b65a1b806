"""What goes with each variable of a split step: slots, update, sums of gradients, casts of its value."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.graph import OpGraph
from tfplace.group.slots import readers_of, slots_of


def weights_of_ops(graph: OpGraph) -> IntArray:
    """[V] the variable, by the op that makes its handle, that each op which stands once goes with; else -1.

    Slots go with their weight. Of an op that several variables are made of, or that is made of several, it is the one
    that it gives most bytes, or takes most from.
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
    for v in range(graph.num_ops - 1, -1, -1):
        if weight[v] < 0 and once[v]:
            weight[v] = _heaviest([(int(weight[u]), int(size[u])) for u in readers[v] if once[u]])
    for v in range(graph.num_ops):
        if weight[v] < 0 and once[v]:
            makers = [(int(graph.tensor_op[t]), int(graph.tensor_bytes[t])) for t in graph.inputs[v]]
            weight[v] = _heaviest([(int(weight[u]), taken) for u, taken in makers])
    return weight


def _heaviest(given: list[tuple[int, int]]) -> int:
    """The variable with most bytes, of several the first; -1 if there is none."""
    total: dict[int, int] = {}
    for variable, taken in given:
        if variable >= 0:
            total[variable] = total.get(variable, 0) + taken + 1
    return min(total, key=lambda variable: (-total[variable], variable), default=-1)
