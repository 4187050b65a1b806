"""Which ops XLA turns into one kernel, and what memory traffic is left of each such group.

XLA fuses an op into its reader where that is the only one, so that its result never goes through memory ("Operator
Fusion in XLA: Analysis and Evaluation", Snider and Liang 2023, arXiv 2301.13062). What it does besides, such
as to compute an op again in each of several readers, or horizontal fusion on GPUs, is left out.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.buffers import aliases
from tfplace.core.graph import OpGraph
from tfplace.core.xla_ops import COMPILABLE
from tfplace.cost.flops import NOTHING
from tfplace.cost.work import OpWork

_OF_LOOPS = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"})
_LISTS = "TensorList"
_ALONE = frozenset(
    {"conv", "matmul", "depthwise", "linalg", "pool", "random", "scatter", "sort", "function", "copy", "normalisation"}
)
"""Classes that are kernels of their own; a normalization reads its input more than once, so that has to be whole."""
_ALONE_TYPES = ("Gather", "LogSoftmax", "ReadVariableOp", "ResourceGather", "Softmax", "SparseSoftmax")
"""How names begin of others."""
_CLOSING = frozenset({"reduction", "update"})
"""Classes whose results are whole before anything reads them."""


class Role(IntEnum):
    """What an op can be in a group of ops that are one kernel."""

    NOT_COMPILED = 0
    """It runs as without XLA."""
    ALONE = 1
    CLOSING = 2
    """What it reads can be fused into it, but not it into what reads it."""
    FUSING = 3


def roles(graph: OpGraph, work: OpWork, *, loops: bool = False) -> IntArray:
    """[V] the `Role` of each op.

    Args:
      graph: [V] ops.
      work: of the graph.
      loops: whether loops are compiled too. `tfplace.apply` compiles one only if a device has all of it, which is not
        known before placing. Which ops are in loops is told by their trips.
    """
    out = np.empty(graph.num_ops, np.int32)
    for v, (op, kind) in enumerate(zip(graph.op_types, work.kind, strict=True)):
        of_loops = op in _OF_LOOPS or op.startswith(_LISTS)
        if graph.replicable[v] or not (op in COMPILABLE or (loops and of_loops)) or (graph.trips[v] != 1 and not loops):
            out[v] = Role.NOT_COMPILED
        elif of_loops or kind in _ALONE or op.startswith(_ALONE_TYPES):
            out[v] = Role.ALONE
        elif kind in _CLOSING or op == "AssignVariableOp":
            out[v] = Role.CLOSING
        else:
            out[v] = Role.FUSING
    return out


def fusion_groups(graph: OpGraph, role: IntArray) -> IntArray:
    """[V] the group of each op, numbered from 0 by first op; -1 for replicable constants, which are copied.

    From the last op to the first, an op joins the group of its readers if all are in one group, which must have its
    slice, trips, kernels and memory, and where only the last op may touch a resource. So only a group's last op is read
    by others: groups that wait for one another in a circle would have their last ops each before the other.

    Args:
      graph: [V] ops.
      role: [V] see `roles`.
    """
    last = np.where(graph.replicable, -1, np.arange(graph.num_ops))
    readers: list[set[int]] = [set() for _ in range(graph.num_ops)]
    reads_data = np.zeros(graph.num_ops, bool)
    for u, v, tensor, back in zip(
        graph.edge_src.tolist(),
        graph.edge_dst.tolist(),
        graph.edge_tensor.tolist(),
        graph.edge_back.tolist(),
        strict=True,
    ):
        if not back:
            readers[u].add(v)
            reads_data[u] |= tensor >= 0
    alike = _alike(graph)
    fetched = set(graph.fetches)
    for v in range(graph.num_ops - 1, -1, -1):
        into = {int(last[u]) for u in readers[v]}
        if role[v] != Role.FUSING or len(into) != 1 or not reads_data[v] or graph.op_names[v] in fetched:
            continue
        end = into.pop()
        if end >= 0 and role[end] >= Role.CLOSING and alike[end] == alike[v] and _may_join(graph, v, end):
            last[v] = end
    return _numbered(last)


def external_bytes(graph: OpGraph, groups: IntArray, work: OpWork) -> FloatArray:
    """[G] bytes that one execution of each group reads and writes: a value read twice counts once, inner ones not.

    Args:
      graph: [V] ops.
      groups: [V] see `fusion_groups`.
      work: of the graph.
    """
    value = _values(graph, work)
    given = np.array([graph.tensor_bytes[list(row)].sum() for row in graph.inputs], np.float64)
    part = np.divide(work.read_bytes, given, out=np.zeros_like(given), where=given > 0)  # a slice reads some of it
    reads: dict[tuple[int, int], float] = {}
    read_by: list[set[int]] = [set() for _ in range(graph.num_tensors)]
    for v, row in enumerate(graph.inputs):
        for t in row:
            read_by[value[t]].add(int(groups[v]))
            key = int(groups[v]), int(value[t])
            reads[key] = max(reads.get(key, 0.0), part[v] * graph.tensor_bytes[t])
    total = np.zeros(int(groups.max(initial=-1)) + 1)
    home = groups[graph.tensor_op]
    for (group, t), read in reads.items():
        if group >= 0 and home[t] != group:
            total[group] += read
    for t in np.flatnonzero(home >= 0).tolist():
        kept = read_by[t] == {int(home[t])} and graph.op_names[graph.tensor_op[t]] not in graph.fetches
        if value[t] == t and not kept and work.written_bytes[graph.tensor_op[t]]:
            total[home[t]] += graph.tensor_bytes[t]
    inside = groups >= 0
    np.add.at(total, groups[inside], work.updated_bytes[inside])
    return np.minimum(total, np.bincount(groups[inside], work.traffic_bytes[inside], len(total)))


def _alike(graph: OpGraph) -> list[tuple[object, ...]]:
    """[V] what the ops of a group have in common."""
    slice_of = np.full(graph.num_ops, -1) if graph.slices is None else graph.slices.slice_of
    kernels = map(tuple, graph.has_kernel.tolist())
    return list(zip(slice_of.tolist(), graph.trips.tolist(), kernels, graph.host_memory.tolist(), strict=True))


def _may_join(graph: OpGraph, v: int, end: int) -> bool:
    """Whether no resource or colocation binds an op elsewhere than the last op of its group."""
    return all(label[v] < 0 or label[v] == label[end] for label in (graph.resource, graph.colocation))


def _values(graph: OpGraph, work: OpWork) -> IntArray:
    """[T] the tensor that each is another name of, or itself."""
    position = aliases(graph)
    out = np.arange(graph.num_tensors, dtype=np.int32)
    for t, v in enumerate(graph.tensor_op.tolist()):
        inputs = graph.inputs[v]
        if work.kind[v] == NOTHING and 0 <= position[t] < len(inputs) and inputs[position[t]] < t:
            out[t] = out[inputs[position[t]]]
    return out


def _numbered(last: IntArray) -> IntArray:
    """[V] groups by their last ops -> groups numbered by their first ops."""
    number: dict[int, int] = {}
    return np.array([-1 if end < 0 else number.setdefault(end, len(number)) for end in last.tolist()], np.int32)
