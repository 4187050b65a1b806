"""Equal replicas as `MirroredStrategy` and `MultiWorkerMirroredStrategy` run them: variables everywhere, one ring.

Every replica reads, trains and updates all variables itself. When the last gradient is made, all are put into one
buffer, which goes round a ring of all devices, host by host, in as many chunks as there are (`tfplace.transforms.ring`;
P. Patarasu and X. Yuan, JPDC 2009), and are taken out again. Rows that gradients of embeddings consist of are gathered.
NCCL has rings and trees, of which it takes the faster; trees take fewer steps on many hosts.

`tfplace.search.mirrored` simulates the same step op by op. Averages that stand once, such as BatchNorm's, are left out
of the exchange here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tfplace.core.stepcost import StepCost
from tfplace.group.owners import weights_of_ops
from tfplace.simulation.pieces import Pieces
from tfplace.simulation.replica import Kind, Replica
from tfplace.simulation.replicas import Hosts, Layout

_CHUNK = -2
"""Number of the tensor that goes round the ring."""


def simulate_mirrored(replica: Replica, hosts: Hosts, count: int, *, inputs_on_first: bool = False) -> StepCost:
    """A step of several replicas on one device each.

    Memory is not simulated: peaks are 0.

    Args:
      replica: one of them, on one device.
      hosts: the devices.
      count: of replicas, at least 2; they fill one host after the other.
      inputs_on_first: whether the first host has the inputs of all, on its CPU or its first accelerator, whichever is
        better; else each host has its own on its CPU.
    """
    costs = []
    for on_cpu in (True, False) if inputs_on_first else (True,):
        step = _Mirrored(Layout(replica, hosts, count, inputs_on_cpu=on_cpu), inputs_on_first=inputs_on_first)
        costs.append(step.pieces.cost(hosts.topology))
    best = min(costs, key=lambda cost: cost.step_s)
    return replace(best, peak_bytes=np.zeros_like(best.peak_bytes))


class _Mirrored:
    """The pieces of all replicas."""

    def __init__(self, layout: Layout, *, inputs_on_first: bool) -> None:
        self.layout, self.pieces, one = layout, Pieces(), layout.replica
        self.replica = one
        self.devices = [layout.device(int(one.device[one.kind == Kind.OWN][0]), r) for r in range(layout.count)]
        graph = one.problem.graph
        weights = weights_of_ops(graph)
        trained = {int(weights[variable.op]) for variable in graph.variables if variable.trainable}
        self.trained = np.isin(one.weight, list(trained))
        into = {m.reader: m for m in one.messages if one.kind[m.reader] == Kind.SUM}
        self.gradients = {int(one.weight[n]): m.size_bytes for n, m in into.items() if int(one.weight[n]) in trained}
        rows = [m for m in one.messages if one.kind[m.maker] == Kind.OWN and one.kind[m.reader] == Kind.SHARED]
        self.row_bytes = sum({m.tensor: m.size_bytes for m in rows if int(one.weight[m.reader]) in trained}.values())
        seconds = one.seconds[np.arange(len(one.kind)), one.device]
        updating = self.trained & (one.kind == Kind.SHARED)
        self.update_s = {w: float(seconds[updating & (one.weight == w)].sum()) for w in sorted(trained)}
        # Such as by the norm of all gradients.
        self.together = any(
            updating[m.maker] and updating[m.reader] and one.weight[m.maker] != one.weight[m.reader]
            for m in one.messages
        )
        self._rank = 0
        self._exchange(self._passes(inputs_on_first=inputs_on_first))

    def _add(self, seconds: float, r: int) -> int:
        self._rank += 1
        return self.pieces.add(seconds, self.devices[r], self._rank)

    def _next(self, seconds: float, r: int, before: int) -> int:
        piece = self._add(seconds, r)
        self.pieces.read(piece, before, -1, 0.0)
        return piece

    def _passes(self, *, inputs_on_first: bool) -> list[int]:
        """Reads and both passes of every replica; the last piece of each."""
        one, layout = self.replica, self.layout
        seconds = one.seconds[np.arange(len(one.kind)), one.device]
        reads_s = float(seconds[(one.kind == Kind.GIVEN) & self.trained].sum() + seconds[one.kind == Kind.LOOKUP].sum())
        inputs = np.flatnonzero((one.kind == Kind.GIVEN) & (one.weight < 0))
        given: dict[tuple[int, int], int] = {}
        for h in [0] if inputs_on_first else sorted(set(layout.host_of)):
            for n in inputs.tolist():
                self._rank += 1
                home = int(layout.inputs[h])
                given[n, h] = self.pieces.add(float(seconds[n]), home, self._rank)
        for m in one.messages:
            for h in [0] if inputs_on_first else sorted(set(layout.host_of)):
                if (m.maker, h) in given and (m.reader, h) in given:
                    self.pieces.read(given[m.reader, h], given[m.maker, h], m.tensor, m.size_bytes)
        waits: dict[int, list[tuple[int, int, float]]] = {}
        for m in one.messages:
            if (m.maker, 0) in given and one.kind[m.reader] in (Kind.OWN, Kind.LOOKUP):
                reader = m.reader if one.kind[m.reader] == Kind.OWN else self._reader_of(m.reader)
                waits.setdefault(reader, []).append((m.maker, m.tensor, m.size_bytes))
        ends = []
        for r in range(layout.count):
            h = 0 if inputs_on_first else layout.host_of[r]
            last = self._add(reads_s, r)
            own_s = 0.0
            for n in np.flatnonzero(one.kind == Kind.OWN).tolist():
                if n in waits:
                    last = self._next(own_s, r, last)
                    own_s = 0.0
                    last = self._next(0.0, r, last)
                    for maker, tensor, size in waits[n]:
                        self.pieces.read(last, given[maker, h], tensor, size)
                own_s += float(seconds[n])
            ends.append(self._next(own_s, r, last))
        return ends

    def _reader_of(self, n: int) -> int:
        """The first piece of the replica's own that reads what is looked up."""
        one = self.replica
        return min(m.reader for m in one.messages if m.maker == n and one.kind[m.reader] == Kind.OWN)

    def _exchange(self, ends: list[int]) -> None:
        """The ring of dense gradients, then that of rows; variables are updated as their gradients come round."""
        n, total = self.layout.count, sum(self.gradients.values())
        packed = [self._next(self._moves(2 * total), r, ends[r]) for r in range(n)]
        split = [self._next(self._overhead_s(), r, packed[r]) for r in range(n)]
        rounds = [split]
        for step in range(2 * (n - 1)):
            rounds.append(self._sent_on(rounds[-1], total / n, added=step < n - 1))
        last = rounds[-1]
        for _ in range(n - 1 if self.row_bytes else 0):
            last = self._sent_on(last, self.row_bytes, added=False)
        for r in range(n):
            for step, seconds in enumerate(self._updates_s(r, total / n)):
                self._next(seconds, r, rounds[n - 1 + step][r] if step < n else last[r])

    def _sent_on(self, chunk: list[int], chunk_bytes: float, *, added: bool) -> list[int]:
        """Every replica sends a chunk to the next one, which adds its own."""
        n = self.layout.count
        seconds = self._moves(3 * chunk_bytes) if added else self._overhead_s()
        sent = [self._next(seconds, r, chunk[r]) for r in range(n)]
        for r, piece in enumerate(sent):
            self.pieces.read(piece, chunk[(r - 1) % n], _CHUNK, chunk_bytes)
        return sent

    def _updates_s(self, r: int, chunk_bytes: float) -> list[float]:
        """[n + 1] seconds of taking gradients out of chunks, and of updates, by the round that brings the last chunk.

        Gradients that come in rows, or need all others, come in round n.
        """
        n = self.layout.count
        out, end = [0.0] * (n + 1), 0.0
        for weight, update_s in self.update_s.items():
            size = self.gradients.get(weight)
            if size is None:
                out[n] += update_s
                continue
            chunks = range(int(end // chunk_bytes), min(int((end + size - 1) // chunk_bytes), n - 1) + 1)
            end += size
            step = n if self.together else max(((r - chunk) % n for chunk in chunks), default=n)
            out[step] += update_s + self._moves(2 * size)
        return out

    def _overhead_s(self) -> float:
        return self.layout.hosts.topology.devices[self.devices[0]].op_overhead_s

    def _moves(self, size_bytes: float) -> float:
        """Seconds of an op that reads and writes so many bytes."""
        device = self.layout.hosts.topology.devices[self.devices[0]]
        return device.op_overhead_s + size_bytes / device.memory_bandwidth
