"""Updates of variables that wait for the ops which still read what they overwrite.

While what was read of a variable is held, TensorFlow writes a new copy of it (`PrepareToUpdateVariable`,
training_op_helpers.h). Its executor starts ops that are ready in no fixed order, mostly the newest first: an update
often begins before the backward pass has read the weight, and a step then holds copies of many weights at a time.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.buffers import READS, aliases, variable_of, writes_whole
from tfplace.core.control_flow import control_flow, idle_constants
from tfplace.core.graph import OpGraph
from tfplace.core.op_types import of_types
from tfplace.execution.waits import Waits


def with_updates_last(graph: OpGraph, op_device: IntArray, waits: Waits) -> Waits:
    """The same waits, and updates of whole variables wait for the ops beside them that read the old values.

    Ops in loops are not waited for, as nothing outside can wait for a single turn, nor those in branches that may not
    be taken, nor those that themselves wait for the update. Copies that go to other devices hold no variable.

    Args:
      graph: [V] ops.
      op_device: [V] device of each op.
      waits: what ops wait for already, without cycles.
    """
    reader, update = _pairs(graph, op_device)
    if not len(reader):
        return waits
    free = ~_in_cycles(graph, waits, reader, update)
    names, after = graph.op_names, dict(waits.after)
    for u, v in zip(reader[free].tolist(), update[free].tolist(), strict=True):
        after[names[v]] = (*after.get(names[v], ()), names[u])
    return Waits(after, waits.joints)


def _pairs(graph: OpGraph, op_device: IntArray) -> tuple[IntArray, IntArray]:
    """Readers of variables' own memory, and the updates of these variables on the same devices."""
    flow, handle = control_flow(graph), variable_of(graph)
    held, on = _held_variable(graph, op_device).tolist(), op_device.tolist()
    makers = graph.tensor_op.tolist()
    readers: dict[int, dict[int, None]] = {}
    for v in np.flatnonzero(flow.always_ends & (flow.loop < 0)).tolist():
        for t in graph.inputs[v]:
            if held[t] >= 0 and on[v] == on[makers[t]]:
                readers.setdefault(held[t], {})[v] = None
    pairs = []
    for v in np.flatnonzero(of_types(graph, writes_whole) & ~flow.in_loop).tolist():
        made = {makers[t] for t in graph.inputs[v]}
        variable = int(handle[graph.inputs[v][0]]) if graph.inputs[v] else -1
        pairs += [(u, v) for u in readers.get(variable, ()) if u not in made and on[u] == on[v]]
    both = np.array(pairs, np.int32).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _held_variable(graph: OpGraph, op_device: IntArray) -> IntArray:
    """[T] the variable whose own memory each tensor is where it is made; -1 for memory of its own."""
    out = np.full(graph.num_tensors, -1, np.int32)
    shared, handle = aliases(graph), variable_of(graph)
    for t in np.flatnonzero(shared >= 0).tolist():
        op = int(graph.tensor_op[t])
        source = graph.inputs[op][int(shared[t])]
        if graph.op_types[op] == READS:
            out[t] = handle[source]
        elif op_device[op] == op_device[graph.tensor_op[source]]:
            out[t] = out[source]
    return out


def _in_cycles(graph: OpGraph, waits: Waits, reader: IntArray, update: IntArray) -> BoolArray:
    """Which pairs are part of a cycle if every update waits for its readers."""
    joint = {name: graph.num_ops + i for i, name in enumerate(waits.joints)}
    place = {**graph.index, **joint}
    told = [(place[u], place[v]) for v, before in waits.after.items() for u in before]
    own = ~idle_constants(graph, control_flow(graph))[graph.edge_dst]
    src = np.concatenate([graph.edge_src[own], [u for u, _ in told], reader]).astype(np.int32)
    dst = np.concatenate([graph.edge_dst[own], [v for _, v in told], update]).astype(np.int32)
    size = graph.num_ops + len(joint)
    edges = coo_array((np.ones(len(src), np.int8), (src, dst)), shape=(size, size))
    cycle = connected_components(edges.tocsr(), connection="strong")[1]
    out: BoolArray = cycle[reader] == cycle[update]
    return out
