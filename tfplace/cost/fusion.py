"""Which ops XLA turns into one kernel, and what memory traffic is left of each such group.

XLA fuses an op into its reader where that is the only one, so that its result never goes through memory ("Operator
Fusion in XLA: Analysis and Evaluation", Snider and Liang 2023, arXiv 2301.13062). What it does besides, such
as to compute an op again in each of several readers, or horizontal fusion on GPUs, is left out.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.buffers import aliases
from tfplace.core.graph import OpGraph
from tfplace.core.kernels import kernel
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
    last = np.where(graph.replicable, -1, np.arange(graph.num_ops)).astype(np.int32)
    onward = np.flatnonzero(~graph.edge_back)
    onward = onward[np.argsort(graph.edge_src[onward], kind="stable")]
    first = np.searchsorted(graph.edge_src[onward], np.arange(graph.num_ops + 1)).astype(np.int32)
    joins = role == Role.FUSING
    joins &= np.bincount(graph.edge_src[onward][graph.edge_tensor[onward] >= 0], minlength=graph.num_ops) > 0
    joins &= ~_fetched(graph)
    bonds = np.stack([graph.resource, graph.colocation]).astype(np.int32)
    _fuse(_Fusing(first, graph.edge_dst[onward], joins, role >= Role.CLOSING, _alike(graph), bonds), last)
    return _numbered(last)


class _Fusing(NamedTuple):
    """What decides which ops are one kernel.

    Attributes:
      first: [V + 1] offsets into `reader`.
      reader: [E] what reads each op.
      joins: [V] whether it may be in the group of its readers.
      takes: [V] whether others may be fused into it.
      alike: [V] of one number are those that may be together.
      bonds: [2, V] what binds ops to others, or -1.
    """

    first: IntArray
    reader: IntArray
    joins: BoolArray
    takes: BoolArray
    alike: IntArray
    bonds: IntArray


@kernel
def _fuse(of: _Fusing, last: IntArray) -> None:
    """Writes the last op of each op's group where that is its own number; -1 stays."""
    for v in range(len(last) - 1, -1, -1):
        if not of.joins[v] or of.first[v] == of.first[v + 1]:
            continue
        end = last[of.reader[of.first[v]]]
        for e in range(of.first[v] + 1, of.first[v + 1]):
            if last[of.reader[e]] != end:
                end = -1
        if end < 0 or not of.takes[end] or of.alike[end] != of.alike[v]:
            continue
        free = True  # no resource or colocation binds an op elsewhere than the last op of its group
        for i in range(len(of.bonds)):
            free = free and (of.bonds[i, v] < 0 or of.bonds[i, v] == of.bonds[i, end])
        if free:
            last[v] = end


def external_bytes(graph: OpGraph, groups: IntArray, work: OpWork) -> FloatArray:
    """[G] bytes that one execution of each group reads and writes: a value read twice counts once, inner ones not.

    Args:
      graph: [V] ops.
      groups: [V] see `fusion_groups`.
      work: of the graph.
    """
    value = _values(graph, work)
    carries = graph.edge_tensor >= 0
    reader, tensor = graph.edge_dst[carries], graph.edge_tensor[carries]
    given: FloatArray = np.bincount(reader, graph.tensor_bytes[tensor], graph.num_ops).astype(np.float64)
    part = np.divide(work.read_bytes, given, out=np.zeros_like(given), where=given > 0)  # a slice reads some of it
    key = value[tensor].astype(np.int64) * (graph.num_ops + 1) + groups[reader] + 1
    once, of = np.unique(key, return_inverse=True)
    reads = np.zeros(len(once))
    np.maximum.at(reads, of.reshape(-1), part[reader] * graph.tensor_bytes[tensor])
    read, by = once // (graph.num_ops + 1), once % (graph.num_ops + 1) - 1  # a value, and a group that reads it
    home = groups[graph.tensor_op]
    outside = (by >= 0) & (home[read] != by)
    total: FloatArray = np.zeros(int(groups.max(initial=-1)) + 1)
    total += np.bincount(by[outside], reads[outside], len(total))
    inner = np.bincount(read[home[read] == by], minlength=graph.num_tensors) > 0
    inner &= (np.bincount(read, minlength=graph.num_tensors) == 1) & ~_fetched(graph)[graph.tensor_op]
    written = (home >= 0) & (value == np.arange(graph.num_tensors)) & ~inner & (work.written_bytes[graph.tensor_op] > 0)
    total += np.bincount(home[written], graph.tensor_bytes[written], len(total))
    inside = groups >= 0
    total += np.bincount(groups[inside], work.updated_bytes[inside], len(total))
    return np.minimum(total, np.bincount(groups[inside], work.traffic_bytes[inside], len(total)))


def _fetched(graph: OpGraph) -> BoolArray:
    """[V] whether the program returns what the op makes."""
    out = np.zeros(graph.num_ops, bool)
    out[[graph.index[name] for name in graph.fetches if name in graph.index]] = True
    return out


def _alike(graph: OpGraph) -> IntArray:
    """[V] ops of one number may be in a group."""
    slice_of = np.full(graph.num_ops, -1) if graph.slices is None else graph.slices.slice_of
    number: dict[tuple[object, ...], int] = {}
    kernels = map(tuple, graph.has_kernel.tolist())
    rows = zip(slice_of.tolist(), graph.trips.tolist(), kernels, graph.host_memory.tolist(), strict=True)
    return np.array([number.setdefault(row, len(number)) for row in rows], np.int32)


def _values(graph: OpGraph, work: OpWork) -> IntArray:
    """[T] the tensor that each is another name of, or itself."""
    position = aliases(graph)
    out = np.arange(graph.num_tensors, dtype=np.int32)
    nothing = np.array([kind == NOTHING for kind in work.kind], bool)
    for t in np.flatnonzero(nothing[graph.tensor_op] & (position >= 0)).tolist():
        inputs = graph.inputs[graph.tensor_op[t]]
        if position[t] < len(inputs) and inputs[position[t]] < t:
            out[t] = out[inputs[position[t]]]
    return out


def _numbered(last: IntArray) -> IntArray:
    """[V] groups by their last ops -> groups numbered by their first ops."""
    inside = np.flatnonzero(last >= 0)
    _, earliest, of = np.unique(last[inside], return_index=True, return_inverse=True)
    number = np.empty(len(earliest), np.int32)
    number[np.argsort(earliest, kind="stable")] = np.arange(len(earliest), dtype=np.int32)
    out = np.full(len(last), -1, np.int32)
    out[inside] = number[of.reshape(-1)]
    return out
