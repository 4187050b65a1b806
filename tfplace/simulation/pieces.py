"""Pieces of work and the tensors between them, as a problem that the simulator takes."""

from __future__ import annotations

import heapq

import numpy as np

from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.grouping import Grouping
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.core.topology import Topology
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import WITHOUT_PHASES

_TYPE = "StatefulPartitionedCall"
"""Type of the op that runs a piece."""


class Pieces:
    """Pieces that are written in any order.

    Attributes:
      device: of each.
    """

    def __init__(self) -> None:
        self.device: list[int] = []
        self._seconds: list[float] = []
        self._rank: list[int] = []
        self._phase: list[int] = []
        self._bytes: dict[tuple[int, int], float] = {}
        self._reads: list[tuple[int, int, int]] = []

    def add(self, seconds: float, device: int, rank: int, phase: int = -1) -> int:
        """A piece.

        Args:
          seconds: that it takes.
          device: that it runs on.
          rank: of pieces that are ready at one time, that with the least goes first.
          phase: on its device, as in `Placement.phases`.

        Returns:
          Its number.
        """
        self.device.append(device)
        self._seconds.append(seconds)
        self._rank.append(rank)
        self._phase.append(phase)
        return len(self.device) - 1

    def read(self, reader: int, maker: int, tensor: int, size_bytes: float) -> None:
        """Has a piece wait for a tensor of another, by its number there; to readers on one device it is sent once."""
        self._bytes[maker, tensor] = size_bytes
        self._reads.append((maker, reader, tensor))

    def cost(self, topology: Topology) -> StepCost:
        """What they cost; what is said of memory means nothing."""
        place = self._order()
        device, phases = np.empty((2, len(place)), np.int32)
        device[place], phases[place] = self.device, self._phase
        ordered = phases if phases.max(initial=-1) >= 0 else None
        return Simulator(self._problem(topology, place), WITHOUT_PHASES, phases=ordered, threads=1).devices(device)

    def _problem(self, topology: Topology, place: list[int]) -> Problem:
        """The pieces as ops, by their places in a topological order."""
        count, devices = len(place), len(topology.devices)
        seconds = np.empty(count)
        seconds[place] = self._seconds
        tensors = sorted(self._bytes, key=lambda made: (place[made[0]], made[1]))
        number = {made: t for t, made in enumerate(tensors)}
        maker = np.array([place[piece] for piece, _ in tensors], np.int32)
        edges = np.array(
            sorted({(place[reader], number[made, tensor], place[made]) for made, reader, tensor in self._reads}),
            np.int64,
        ).reshape(-1, 3)
        graph = OpGraph(
            name="replicas",
            op_names=tuple(map(str, range(count))),
            op_types=(_TYPE,) * count,
            op_attrs=({},) * count,
            tensor_op=maker,
            tensor_slot=(np.arange(len(maker)) - np.searchsorted(maker, maker)).astype(np.int32),
            tensor_dtype=("float32",) * len(maker),
            tensor_shape=(None,) * len(maker),
            tensor_bytes=np.array([round(self._bytes[made]) for made in tensors], np.int64),
            edge_src=edges[:, 2].astype(np.int32),
            edge_dst=edges[:, 0].astype(np.int32),
            edge_tensor=edges[:, 1].astype(np.int32),
            edge_slot=(np.arange(len(edges)) - np.searchsorted(edges[:, 0], edges[:, 0])).astype(np.int32),
            edge_back=np.zeros(len(edges), np.bool_),
            trips=np.ones(count),
            colocation=np.full(count, -1, np.int32),
            resource=np.full(count, -1, np.int32),
            kernel_types=("CPU",),
            has_kernel=np.ones((count, 1), np.bool_),
            host_memory=np.zeros(count, np.bool_),
            replicable=np.zeros(count, np.bool_),
        )
        return Problem(
            graph=graph,
            topology=topology,
            costs=CostTable(np.broadcast_to(seconds[:, None], (count, devices)), ("simulated",) * count),
            constraints=Constraints(),
            grouping=Grouping(np.arange(count, dtype=np.int32), count),
            allowed=np.ones((count, devices), np.bool_),
            memory_limit=np.array([one.memory_bytes for one in topology.devices], np.int64),
            follows=np.arange(count, dtype=np.int32),
        )

    def _order(self) -> list[int]:
        """The place of each piece in a topological order that keeps to the ranks where it can."""
        count = len(self.device)
        readers: list[list[int]] = [[] for _ in range(count)]
        missing = [0] * count
        for maker, reader, _ in self._reads:
            readers[maker].append(reader)
            missing[reader] += 1
        heap = [(self._rank[n], n) for n in range(count) if not missing[n]]
        heapq.heapify(heap)
        place = [-1] * count
        done = 0
        while heap:
            _, n = heapq.heappop(heap)
            place[n] = done
            done += 1
            for reader in readers[n]:
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(heap, (self._rank[reader], reader))
        assert done == count, "pieces that wait for one another in a circle"
        return place
