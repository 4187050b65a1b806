"""A graph that is written op by op, in which some ops of a split graph have a copy for every replica."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.graph import OpGraph, Shape, UnknownShape, Variable
from tfplace.core.slices import Slices


@dataclass(frozen=True)
class Tensor:
    """An output of an op.

    Attributes:
      dtype: its name.
      shape: None if its rank is unknown.
      size_bytes: of all of it.
    """

    dtype: str
    shape: Shape
    size_bytes: int

    @property
    def item_bytes(self) -> int:
        """Bytes of an element, at least 1."""
        return max(self.size_bytes // max(math.prod(self.shape or ()), 1), 1)


@dataclass(frozen=True)
class _Op:
    """An op that is written: of the source, or a new one, which has inputs and outputs of its own."""

    name: str
    replica: int
    source: int = -1
    kind: str = ""
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[Tensor, ...] = ()


def copy_name(name: str, replica: int) -> str:
    """What a replica's copy of an op, or of a variable, is called."""
    return f"replica{replica}/{name}"


class MirroredGraph:
    """Takes over ops of a split graph in some topological order, and has new ones between and instead of them.

    Args:
      source: the split graph.
      copied: [V] its ops of which every replica has a copy.
      replica_of: [K] the replica of each slice.
    """

    def __init__(self, source: OpGraph, copied: BoolArray, replica_of: IntArray) -> None:
        assert source.slices is not None
        self.replicas = int(replica_of.max()) + 1
        self._source, self._slices, self._copied, self._replica_of = source, source.slices, copied, replica_of
        self._replica = np.where(source.slices.slice_of >= 0, replica_of[source.slices.slice_of], -1)
        control = source.edge_dst[(source.edge_tensor < 0) & copied[source.edge_src]]
        self._waits = ~copied & (self._replica < 0) & np.isin(np.arange(source.num_ops), control)
        self._gates: dict[int, list[int]] = {}
        self._ops: list[_Op] = []
        self._at: dict[tuple[int, int], int] = {}

    def take(self, v: int) -> None:
        """Writes an op of the source, or all its copies.

        What stands once and waits for copies gets one message of each replica, by an op that waits for them there.
        """
        name = self._source.op_names[v]
        if self._waits[v]:
            self._gates[v] = [self.add(copy_name(f"{name}/waits", r), "NoOp", [], [], r) for r in range(self.replicas)]
        if self._copied[v]:
            for r in range(self.replicas):
                self.stand_in(v, r, self._write(_Op(copy_name(name, r), r, v)))
        else:
            self._at[v, -1] = self._write(_Op(name, int(self._replica[v]), v))

    def add(self, name: str, kind: str, inputs: Sequence[tuple[int, int]], outputs: Sequence[Tensor], r: int) -> int:
        """Writes a new op of a replica, which reads (op, output) of what is written."""
        return self._write(_Op(name, r, -1, kind, tuple(inputs), tuple(outputs)))

    def stand_in(self, v: int, r: int, op: int) -> None:
        """Has a written op be a replica's copy of an op of the source, for all that reads it."""
        self._at[v, r] = op

    def name_of(self, v: int) -> str:
        """Name of an op of the source."""
        return self._source.op_names[v]

    def made_by(self, v: int) -> Tensor:
        """The first output of an op of the source."""
        return self._tensor(int(self._source.op_tensors[v]))

    def of_replica(self, tensors: Sequence[int], r: int) -> list[tuple[int, int]]:
        """Those of some tensors of the source that a replica's slices make, as (op, output) of what is written."""
        source = self._source
        makers = [(int(source.tensor_op[t]), int(source.tensor_slot[t])) for t in tensors]
        return [(self._at[u, -1], slot) for u, slot in makers if self._replica[u] == r]

    def graph(self) -> OpGraph:
        """What is written, with the edges of the source between its ops and their copies."""
        source, ops = self._source, self._ops
        outputs = [list(op.outputs) if op.source < 0 else self._outputs(op.source) for op in ops]
        counts = [len(row) for row in outputs]
        first = np.concatenate([[0], np.cumsum(counts)])
        tensors = [tensor for row in outputs for tensor in row]
        edges = np.array(self._edges(first), np.int64).reshape(-1, 5)
        of = np.array([op.source for op in ops])
        replica = np.array([op.replica for op in ops], np.int32)
        new = of < 0
        return replace(
            source,
            op_names=tuple(op.name for op in ops),
            op_types=tuple(op.kind if op.source < 0 else source.op_types[op.source] for op in ops),
            op_attrs=tuple({} if op.source < 0 else source.op_attrs[op.source] for op in ops),
            tensor_op=np.repeat(np.arange(len(ops)), counts).astype(np.int32),
            tensor_slot=np.array([slot for row in outputs for slot in range(len(row))], np.int32),
            tensor_dtype=tuple(tensor.dtype for tensor in tensors),
            tensor_shape=tuple(tensor.shape for tensor in tensors),
            tensor_bytes=np.array([tensor.size_bytes for tensor in tensors], np.int64),
            edge_src=edges[:, 0].astype(np.int32),
            edge_dst=edges[:, 1].astype(np.int32),
            edge_tensor=edges[:, 2].astype(np.int32),
            edge_slot=edges[:, 3].astype(np.int32),
            edge_back=edges[:, 4].astype(np.bool_),
            trips=np.where(new, 1.0, source.trips[of]),
            colocation=self._numbers(source.colocation, of, replica, self._copied),
            resource=self._numbers(source.resource, of, replica, self._bonded()),
            has_kernel=new[:, None] | source.has_kernel[of],
            host_memory=~new & source.host_memory[of],
            replicable=~new & source.replicable[of],
            variables=tuple(self._variables()),
            unknown=tuple(self._unknown(first)),
            bodies=tuple(replace(body, op=op) for body in source.bodies for op in self._all(body.op)),
            recomputes=self._recomputes(of),
            fetches=tuple(ops[op].name for name in source.fetches for op in self._all(source.index[name])),
            slices=Slices(
                tuple(np.bincount(self._replica_of, self._slices.sizes).astype(int).tolist()),
                replica,
                tuple("all_reduce" if op.source < 0 else self._slices.original[op.source] for op in ops),
                self._slices.gathered,
                self._slices.differences,
            ),
            origin=None,
        )

    def _write(self, op: _Op) -> int:
        self._ops.append(op)
        return len(self._ops) - 1

    def _tensor(self, t: int) -> Tensor:
        source = self._source
        return Tensor(source.tensor_dtype[t], source.tensor_shape[t], int(source.tensor_bytes[t]))

    def _outputs(self, v: int) -> list[Tensor]:
        return [self._tensor(t) for t in range(self._source.op_tensors[v], self._source.op_tensors[v + 1])]

    def _all(self, v: int) -> list[int]:
        """What is written of an op of the source; nothing of one that was left out."""
        return [self._at[v, r] for r in (range(self.replicas) if self._copied[v] else (-1,)) if (v, r) in self._at]

    def _read_by(self, u: int, r: int) -> int:
        """What is written of an op, for a replica; what stands once reads the first one's copy."""
        return self._at[u, max(r, 0)] if self._copied[u] else self._at[u, -1]

    def _edges(self, first: IntArray) -> list[tuple[int, int, int, int, bool]]:
        """Rows of source, destination, tensor, position, and whether it closes a loop."""
        source, out = self._source, []
        rows = zip(
            source.edge_src.tolist(),
            source.edge_dst.tolist(),
            source.edge_tensor.tolist(),
            source.edge_slot.tolist(),
            source.edge_back.tolist(),
            strict=True,
        )
        for u, v, tensor, position, back in rows:
            for dst in self._all(v) if self._all(u) else ():
                op = self._ops[dst]
                if tensor >= 0:
                    if op.source >= 0:  # what stands in for an op has inputs of its own
                        src = self._read_by(u, op.replica)
                        out.append((src, dst, int(first[src] + source.tensor_slot[tensor]), position, back))
                elif self._waits[v] and self._copied[u]:
                    out += [(w, gate, -1, -1, back) for w, gate in zip(self._all(u), self._gates[v], strict=True)]
                elif not (self._copied[v] and self._replica[u] not in (-1, op.replica)):
                    out.append((self._read_by(u, op.replica), dst, -1, -1, back))
        out += [(gate, self._at[v, -1], -1, -1, False) for v, gates in self._gates.items() for gate in gates]
        for dst, op in enumerate(self._ops):
            out += [(src, dst, int(first[src] + slot), i, False) for i, (src, slot) in enumerate(op.inputs)]
        return out

    def _bonded(self) -> BoolArray:
        """[V] ops of a slice, or with copies, that touch a resource which every replica has."""
        shared = np.isin(self._source.resource, self._source.resource[self._copied])
        return shared & (self._copied | (self._replica >= 0))

    def _numbers(self, labels: IntArray, of: IntArray, replica: IntArray, own: BoolArray) -> IntArray:
        """Labels of sets of ops, of which every replica has its own for the ops in `own`."""
        known = (of >= 0) & (labels[of] >= 0)
        apart = np.where(own[of], replica, 0) * (int(labels.max(initial=0)) + 1)
        return np.where(known, labels[of] + apart, -1).astype(np.int32)

    def _recomputes(self, of: IntArray) -> IntArray | None:
        """[ops] what each written op computes again, of its own replica; None if nothing is."""
        again = self._source.recomputes
        if again is None:
            return None
        originals = np.where(of >= 0, again[of], -1).tolist()
        rows = [-1 if u < 0 else self._read_by(u, op.replica) for u, op in zip(originals, self._ops, strict=True)]
        return np.array(rows, np.int32)

    def _variables(self) -> list[Variable]:
        out = []
        for variable in self._source.variables:
            for op in self._all(variable.op):
                copied = self._copied[variable.op]
                name = copy_name(variable.name, self._ops[op].replica) if copied else variable.name
                out.append(replace(variable, name=name, op=op))
        return out

    def _unknown(self, first: IntArray) -> list[UnknownShape]:
        out = []
        for shape in self._source.unknown:
            v = int(self._source.tensor_op[shape.tensor])
            for op in self._all(v):
                if self._ops[op].source == v:
                    tensor = int(first[op] + self._source.tensor_slot[shape.tensor])
                    out.append(replace(shape, tensor=tensor, op=self._ops[op].name))
        return out
