"""What a forward pass keeps for the backward pass, and by which ops it can be made again."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray, LongArray
from tfplace.core.buffers import READS_NO_DATA, aliases
from tfplace.core.graph import OpGraph
from tfplace.core.passes import late_ops
from tfplace.transforms.recomputable import recomputable_ops

_SMALL = 1e-3
"""Part of all that is kept below which a tensor is kept rather than computed again for another one."""


class Stash:
    """The tensors that forward ops make and late ops read, by the op whose memory they are.

    A view, such as a reshaped tensor, counts for the op that has made what it is a view of.

    Attributes:
      graph: [V] ops.
      possible: [V] ops that can be computed again.
      kept_bytes: [V] bytes that are kept of the op's results.
      readers: [V] late ops that read them.
      views: [V] ops that make the views by which late ops read the op's results.
      droppable: [V] ops whose results need not be kept, and are worth it.
      inputs: [V] (op, op whose memory it is) of each large tensor that an op reads.
      maker: [T] op whose memory a tensor is.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.possible = recomputable_ops(graph)
        root, path = _roots(graph)
        self.maker: IntArray = graph.tensor_op[root]
        kept = np.zeros(graph.num_tensors, np.bool_)
        self.views: list[set[int]] = [set() for _ in range(graph.num_ops)]
        self.readers: list[set[int]] = [set() for _ in range(graph.num_ops)]
        for t, v in _read_late(graph):
            kept[root[t]] = True
            self.views[self.maker[t]].update(path[t])
            self.readers[self.maker[t]].add(v)
        self.kept_bytes: LongArray = np.zeros(graph.num_ops, np.int64)
        np.add.at(self.kept_bytes, graph.tensor_op[kept], graph.tensor_bytes[kept])
        small = _SMALL * float(self.kept_bytes[self.possible].sum())
        self.inputs = [
            [(int(graph.tensor_op[t]), int(self.maker[t])) for t in tensors if graph.tensor_bytes[root[t]] > small]
            for tensors in graph.inputs
        ]
        self.droppable: BoolArray = self.possible & (self.kept_bytes > small)
        for v in np.flatnonzero(self.droppable).tolist():
            self.droppable[v] = all(self.possible[view] for view in self.views[v])


def _roots(graph: OpGraph) -> tuple[IntArray, list[tuple[int, ...]]]:
    """[T] the tensor whose memory each is, and [T] the ops that have made views of it on the way."""
    position = aliases(graph)
    root = np.arange(graph.num_tensors, dtype=np.int32)
    path: list[tuple[int, ...]] = [()] * graph.num_tensors
    for t in np.flatnonzero(position >= 0).tolist():  # a view is made after what it is a view of
        op = int(graph.tensor_op[t])
        viewed = graph.inputs[op][position[t]]
        if viewed < t:  # or it is of the turn before of a loop
            root[t], path[t] = root[viewed], (*path[viewed], op)
    return root, path


def _read_late(graph: OpGraph) -> list[tuple[int, int]]:
    """(tensor, op) of late ops that read the contents of what forward ops make."""
    late = late_ops(graph)
    contents = np.array([kind not in READS_NO_DATA for kind in graph.op_types], np.bool_)
    read = (graph.edge_tensor >= 0) & (late & contents)[graph.edge_dst] & ~late[graph.edge_src]
    return list(zip(graph.edge_tensor[read].tolist(), graph.edge_dst[read].tolist(), strict=True))
