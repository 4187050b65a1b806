"""What one execution of each op does: operations, and bytes read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import FloatArray, LongArray, freeze
from tfplace.core.buffers import aliases, reads_that_copy, variable_of, writes_whole
from tfplace.core.graph import OpGraph
from tfplace.core.kept import kept
from tfplace.cost.flops import COPY, FUNCTION, NOTHING, VIEW, Op, rule_of


class OpWork(NamedTuple):
    """One execution of each op.

    Attributes:
      kind: [V] class, as in `tfplace.cost.flops`.
      flops: [V] operations.
      read_bytes: [V] read from inputs; 0 for what only names or passes on a value.
      written_bytes: [V] written to outputs.
      updated_bytes: [V] of variables, read and written besides.
    """

    kind: tuple[str, ...]
    flops: FloatArray
    read_bytes: LongArray
    written_bytes: LongArray
    updated_bytes: LongArray

    @property
    def traffic_bytes(self) -> LongArray:
        """[V] all that goes through memory."""
        return self.read_bytes + self.written_bytes + self.updated_bytes


@kept
def op_work(graph: OpGraph) -> OpWork:
    """Counts the work of each op.

    A move that gives a view passes on a value, and a dense read of a variable whose rows are written is a copy
    (`tfplace.core.buffers`). What keeps a function counts nothing here. What writes variables whole reads and writes
    all of them: of an Adam update that is the weight and both slots, beside the gradient.

    Args:
      graph: [V] ops.
    """
    rules = [rule_of(op) for op in graph.op_types]
    for body in graph.bodies:
        rules[body.op] = rules[body.op] if body.graph is None else FUNCTION
    views = np.append(aliases(graph) >= 0, True)
    for v in range(graph.num_ops):
        if rules[v][0] == "move" and views[graph.op_tensors[v] : graph.op_tensors[v + 1]].all():
            rules[v] = VIEW
    for v in reads_that_copy(graph):
        rules[v] = COPY
    flops = np.array([count(Op(graph, v)) for v, (_, count) in enumerate(rules)])
    kind = tuple(name for name, _ in rules)
    return OpWork(kind, *map(freeze, (flops, *_traffic(graph, kind), 2 * _updated_bytes(graph))))


@kept
def computing_dtypes(graph: OpGraph) -> tuple[str, ...]:
    """[V] the type that each op computes in: of its first output, or of its first input if it has none."""
    return tuple(_dtype_of(graph, v) for v in range(graph.num_ops))


def _dtype_of(graph: OpGraph, v: int) -> str:
    first = int(graph.op_tensors[v])
    if first < graph.op_tensors[v + 1]:
        return graph.tensor_dtype[first]
    return graph.tensor_dtype[graph.inputs[v][0]] if graph.inputs[v] else "float32"


def _updated_bytes(graph: OpGraph) -> LongArray:
    """[V] bytes of the variables that an op changes; one that is only assigned takes the memory it is given."""
    handle, size = variable_of(graph), graph.persistent_bytes
    out = np.zeros(graph.num_ops, np.int64)
    for v, kind in enumerate(graph.op_types):
        if writes_whole(kind) and kind != "AssignVariableOp":
            out[v] = sum(int(size[handle[t]]) for t in graph.inputs[v] if handle[t] >= 0)
    return out


def _traffic(graph: OpGraph, kind: Sequence[str]) -> tuple[LongArray, LongArray]:
    """[V] bytes read and [V] written by one execution of each op, of [V] classes."""
    is_of = {name: np.array([one == name for one in kind], bool) for name in ("move", "copy", NOTHING, FUNCTION[0])}
    carries = graph.edge_tensor >= 0
    read, written = np.zeros(graph.num_ops, np.int64), np.zeros(graph.num_ops, np.int64)
    np.add.at(read, graph.edge_dst[carries], graph.tensor_bytes[graph.edge_tensor[carries]])
    np.add.at(written, graph.tensor_op, graph.tensor_bytes)
    read = np.where(is_of["move"], np.minimum(read, written), read)  # a slice reads what it writes, not all it could
    read = np.where(is_of["copy"], written, read)
    none = is_of[NOTHING] | is_of[FUNCTION[0]]
    return np.where(none, 0, read), np.where(none, 0, written)
