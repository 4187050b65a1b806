"""One of several equal replicas of a step: its simulated order of ops, cut at what it exchanges with the others.

Replicas that are alike do the same at the same times, so that one is simulated op by op and stands for all. What it
does between two messages is one piece, which takes the seconds of its ops and is followed by the next piece of the same
device. What the replicas share, such as reads of variables, their slots and updates, stays apart op by op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.errors import InputError
from tfplace.group.owners import weights_of_ops
from tfplace.group.sharing import row_lookups
from tfplace.simulation.evaluate import timeline_in_phases

_ADDS = ("AddN", "AddV2")


class Kind(IntEnum):
    """What a piece is."""

    OWN = 0
    """Ops of one device of a replica; every replica has its own."""
    SUM = 1
    """The sum of a tensor of every replica."""
    SHARED = 2
    """What stands once and reads what replicas made, or what such pieces made."""
    GIVEN = 3
    """What stands once and needs nothing of the replicas, such as the read of a variable."""
    LOOKUP = 4
    """Rows that each replica takes of a variable, where that is: it is sent the rows."""


@dataclass(frozen=True, eq=False)
class Message:
    """A tensor, or the completion of an op, that another piece waits for.

    Attributes:
      maker: piece.
      reader: piece.
      tensor: number of the tensor; alike for all readers of one tensor.
      size_bytes: of all executions in a step.
    """

    maker: int
    reader: int
    tensor: int
    size_bytes: float


@dataclass(frozen=True, eq=False)
class Replica:
    """A replica in [N] pieces.

    Attributes:
      problem: of one replica, on the devices that it has.
      kind: [N] `Kind`.
      seconds: [N, D] of each piece on each of the replica's devices.
      device: [N] device of a piece of the replica's own, by its number in the problem.
      weight: [N] variable that a shared piece goes with, by the op that makes its handle; -1 for none, such as inputs.
      start_s: [N] when it starts where there is only one replica.
      rank: [N] of pieces that are ready at one time, that with the least goes first.
      messages: between pieces.
      phase: [N] of each piece on its device, as in `Placement.phases`; -1 for those that run as soon as they can.
      whole: whether pieces are clusters of a compiled step, each of which follows the one before on its device.
      home: [W] device of each variable, by the op that makes the handle.
      size_bytes: [W] bytes of each variable with its slots, alike.
    """

    problem: Problem
    kind: IntArray
    seconds: FloatArray
    device: IntArray
    weight: IntArray
    start_s: FloatArray
    rank: IntArray
    messages: tuple[Message, ...]
    phase: IntArray
    whole: bool
    home: dict[int, int]
    size_bytes: dict[int, int]


def cut_replica(
    problem: Problem, op_device: IntArray, phases: IntArray | None, stretches: int | None = None
) -> Replica:
    """Cuts a replica of a step where it waits for others or makes something for them.

    Args:
      problem: the step of one replica, in one slice or several, on the devices that it has.
      op_device: [V] where its ops are.
      phases: [V] in what order they run, as in `Placement.phases`.
      stretches: of a compiled step, which sends nothing before the end of a cluster: into so many clusters of equal
        seconds each device's ops are cut.

    Raises:
      InputError: the step is not split.
    """
    if problem.graph.slices is None:
        raise InputError(f"a replica of {problem.graph.name!r}, which has no slices", "a step in at least one slice")
    return _Cut(problem, op_device, phases, stretches).replica()


class _Cut:
    """What is known of the ops on the way to pieces; [V] ops, [E] edges between those that run."""

    def __init__(self, problem: Problem, op_device: IntArray, phases: IntArray | None, stretches: int | None) -> None:
        graph = problem.graph
        assert graph.slices is not None
        self.problem, self.graph, self.stretches = problem, graph, stretches
        self.op_device = op_device
        self.phase: IntArray = np.full(graph.num_ops, -1, np.int32) if phases is None else phases
        self.runs: BoolArray = ~graph.replicable
        kept = ~graph.edge_back & self.runs[graph.edge_src] & self.runs[graph.edge_dst]
        order = np.flatnonzero(kept)[np.argsort(graph.edge_dst[kept], kind="stable")]
        self.edges = [
            (int(graph.edge_src[e]), int(graph.edge_dst[e]), int(graph.edge_tensor[e])) for e in order.tolist()
        ]
        self.own: BoolArray = (graph.slices.slice_of >= 0) & self.runs
        self.lookups = dict(row_lookups(graph, graph.slices))
        self.own[list(self.lookups)] = False
        self.sums, partial = self._sums()
        # Added up within the replica first.
        self.own[[*partial, *(v for v, terms in self.sums.items() if terms > 1)]] = True
        self.weight: IntArray = weights_of_ops(graph).copy()
        for v, table in self.lookups.items():
            self.weight[v] = self.weight[table]
        self.late = self._late()
        self.start_s: FloatArray = timeline_in_phases(problem, op_device, phases).start_s.astype(np.float64)
        self.seconds: FloatArray = np.where(graph.replicable[:, None], 0.0, problem.costs.compute_s)

    def _sums(self) -> tuple[dict[int, int], list[int]]:
        """Ops that stand once and add up tensors of slices -> how many; and sums of only some slices on the way there.

        Large tensors are added one by one, see `tfplace.transforms.resharding`.
        """
        graph, found = self.graph, {}
        assert graph.slices is not None
        terms: dict[int, frozenset[int]] = {}  # of each sum so far, the ops that make them
        for v, kind in enumerate(graph.op_types):
            if kind not in _ADDS or self.own[v]:
                continue
            makers = graph.tensor_op[list(graph.inputs[v])].tolist()
            if all(self.own[u] or u in terms for u in makers):
                terms[v] = frozenset().union(*(terms.get(u, {u}) for u in makers))
        partial = []
        for v, makers in terms.items():
            alike = len({graph.slices.original[u] for u in makers}) == 1
            if graph.op_types[v] == "AddN":
                found[v] = len(graph.inputs[v])
            elif alike and {int(graph.slices.slice_of[u]) for u in makers} == set(range(len(graph.slices.sizes))):
                found[v] = len(makers)
                partial += [u for u, some in terms.items() if u != v and some < makers and some]
        return found, partial

    def _late(self) -> BoolArray:
        """[V] whether an op is of the replica or comes after such an op."""
        late = self.own.copy()
        late[list(self.lookups)] = True
        for u, v, _ in self.edges:
            late[v] |= late[u]
        return late

    def replica(self) -> Replica:
        piece, kind, device, weight = self._pieces()
        count = len(kind)
        combined = {v: count + i for i, v in enumerate(v for v, terms in self.sums.items() if terms > 1)}
        seconds = np.zeros((count, self.problem.num_devices))
        np.add.at(seconds, piece[self.runs], self.seconds[self.runs])
        seconds[np.array(kind) == Kind.SUM] = 0.0
        start_s = np.full(count + len(combined), np.inf)
        np.minimum.at(start_s, piece[self.runs], self.start_s[self.runs])
        rank = np.full(count + len(combined), self.graph.num_ops)
        np.minimum.at(rank, piece[self.runs], np.flatnonzero(self.runs))
        for v, n in combined.items():
            start_s[n], rank[n] = self.start_s[v], v
        messages = list(self._messages(piece, combined))
        return Replica(
            problem=self.problem,
            kind=np.array(kind + [Kind.SUM] * len(combined), np.int32),
            seconds=np.concatenate([seconds, np.zeros((len(combined), seconds.shape[1]))]),
            device=np.array(device + [int(self.op_device[v]) for v in combined], np.int32),
            weight=np.array(weight + [int(self.weight[v]) for v in combined], np.int32),
            start_s=start_s,
            rank=rank.astype(np.int32),
            messages=tuple(messages),
            phase=self._phases(piece, kind + [Kind.SUM] * len(combined)),
            whole=self.stretches is not None,
            **self._variables(),
        )

    def _pieces(self) -> tuple[IntArray, list[int], list[int], list[int]]:
        """[V] the piece of each op, and of each piece its kind, its device and its variable."""
        piece = np.full(self.graph.num_ops, -1, np.int32)
        kind: list[int] = []
        device: list[int] = []
        weight: list[int] = []
        for d in np.unique(self.op_device[self.own]).tolist():
            mine = np.flatnonzero(self.own & (self.op_device == d))
            ops: IntArray = mine[np.lexsort((mine, self.start_s[mine]))].astype(np.int32)
            numbers = self._stretch(ops, d)
            piece[ops] = len(kind) + numbers
            several = int(numbers[-1]) + 1
            kind += [Kind.OWN] * several
            device += [d] * several
            weight += [-1] * several
        for v in np.flatnonzero(self.runs & ~self.own).tolist():
            piece[v] = len(kind)
            kind.append(self._kind(v))
            device.append(int(self.op_device[v]))
            weight.append(int(self.weight[v]))
        return piece, kind, device, weight

    def _phases(self, piece: IntArray, kind: list[int]) -> IntArray:
        """[N] those of the replica's own ops and of what it is given."""
        out = np.full(len(kind), -1, np.int32)
        if self.stretches is None:
            out[piece[self.runs]] = self.phase[self.runs]
        out[np.isin(kind, [Kind.SUM, Kind.SHARED, Kind.LOOKUP])] = -1
        return out

    def _kind(self, v: int) -> Kind:
        if v in self.lookups:
            return Kind.LOOKUP
        if v in self.sums:
            return Kind.SUM
        return Kind.SHARED if self.late[v] else Kind.GIVEN

    def _stretch(self, ops: IntArray, d: int) -> IntArray:
        """[ops] the number of the piece of each op of a device, which are given in their order."""
        begins, ends = np.zeros((2, self.graph.num_ops), np.bool_)
        for u, v, _ in self.edges:
            if self.own[v] and (not self.own[u] or self.op_device[u] != self.op_device[v]):
                begins[v] |= self.stretches is None or bool(self.late[u])
            if self.own[u] and (not self.own[v] or self.op_device[u] != self.op_device[v]):
                ends[u] |= self.stretches is None or bool(self.own[v])
        new = begins[ops]
        new[1:] |= ends[ops[:-1]]
        if self.stretches is None:
            new[1:] |= np.diff(self.phase[ops]) != 0
        if self.stretches is not None:
            seconds = self.seconds[ops, d]
            done = np.cumsum(seconds) - seconds
            of = np.floor(self.stretches * done / max(float(seconds.sum()), 1e-12))
            new[1:] |= np.diff(of) > 0
        new[0] = False
        numbers: IntArray = np.cumsum(new).astype(np.int32)
        return numbers

    def _messages(self, piece: IntArray, combined: dict[int, int]) -> Iterator[Message]:
        """What pieces wait for."""
        graph, seen = self.graph, set()
        for u, v, tensor in self.edges:
            maker, reader = int(piece[u]), int(piece[v])
            number = tensor if tensor >= 0 else graph.num_tensors + u
            if u in combined and not self.own[v]:
                maker = combined[u]
            if maker == reader or (maker, reader, number) in seen:
                continue
            seen.add((maker, reader, number))
            yield Message(maker, reader, number, self._bytes(tensor))
        for v, n in combined.items():
            tensor = int(graph.op_tensors[v])
            yield Message(int(piece[v]), n, tensor, self._bytes(tensor))

    def _bytes(self, tensor: int) -> float:
        if tensor < 0:
            return 0.0
        return float(self.graph.tensor_bytes[tensor] * self.graph.trips[self.graph.tensor_op[tensor]])

    def _variables(self) -> dict[str, dict[int, int]]:
        home: dict[int, int] = {}
        size: dict[int, int] = {}
        for variable in self.graph.variables:
            weight = int(self.weight[variable.op])
            if weight >= 0:
                home[weight] = int(self.op_device[weight])
                size[weight] = size.get(weight, 0) + variable.size_bytes
        return {"home": home, "size_bytes": size}
