"""What Grappler's cost model says of placements, with transfers added; nothing is run (docs/reference/grappler.md)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grappler_bridge.check import check_graph
from grappler_bridge.cluster import VirtualDevice
from grappler_bridge.errors import GrapplerError, GrapplerInputError
from grappler_bridge.step import Step, StepFigures
from grappler_bridge.transfers import Link, Tensor
from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.stepcost import FAILED_BYTES, GRAPPLER, UNKNOWN_BYTES, Failure, FailureKind, Key, StepCost, failed
from tfplace.core.topology import Topology
from tfplace.errors import GraphError, TopologyError
from tfplace.measurement.grappler_process import GrapplerLostError, GrapplerProcess, GrapplerTimeOutError

_FAILURES: dict[type[Exception], FailureKind] = {
    GrapplerTimeOutError: FailureKind.TIME_OUT,
    GrapplerLostError: FailureKind.WORKER_LOST,
    GrapplerError: FailureKind.ERROR,
    GrapplerInputError: FailureKind.ERROR,
}
_ERRORS = tuple(_FAILURES)


class GrapplerEvaluator(Evaluator):
    """Costs placements by TensorFlow's own analytic model, Grappler's, on a virtual cluster of the topology's devices.

    Grappler charges nothing for moving tensors between devices, so transfers over the topology's links are written into
    the graph before it costs it; `figures` tells both numbers. It knows neither `problem.costs` nor the devices'
    `op_overhead_s`. It runs in processes of its own, which take some seconds to start, once; what crashes or hangs
    there is a `Failure` here.

    Args:
      problem: what is placed; its graph must come from TensorFlow.
      time_out_s: seconds after which a placement is given up.
      workers: processes, of which each takes a share of `keys`.

    Raises:
      GraphError: the graph was made from plain arrays, or is one that Grappler would crash on or misunderstand.
      TopologyError: a device that Grappler cannot stand for.
    """

    source = GRAPPLER

    def __init__(self, problem: Problem, *, time_out_s: float = 300.0, workers: int = 1) -> None:
        self._begin(problem, _step(problem), time_out_s, workers)

    def _begin(self, problem: Problem, step: Step, time_out_s: float, workers: int) -> None:
        self.problem = problem
        self._step = step
        self._time_out_s = time_out_s
        self._processes = [GrapplerProcess(step, time_out_s) for _ in range(max(workers, 1))]
        self.batch_limit = len(self._processes)
        self._threads: ThreadPoolExecutor | None = None
        self._plausible_bytes = int(problem.graph.tensor_bytes.sum())
        self._ends = _channel_ends(problem.topology)

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew in another process, where it has one process."""
        return _remade, (self.problem, self._step, self._time_out_s)

    def __call__(self, unit_device: ArrayLike) -> StepCost:
        """The cost of a step with unit u on device `unit_device[u]`, [U] indices.

        Raises:
          PlacementError: a wrong length, an index out of range, or a device the unit may not be on.
        """
        return self._cost(self._processes[0], self.problem.expand(np.asarray(unit_device)))

    def key(self, unit_device: ArrayLike, limit_s: float = np.inf) -> Key:
        """`self(unit_device).key`; the indices are not checked, and no step is given up."""
        return self._cost(self._processes[0], self.problem.spread(np.asarray(unit_device))).key

    def keys(self, unit_devices: ArrayLike, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """Keys of many placements, [B, U]: bytes over the limits [B] and step seconds [B]."""
        rows = [self.problem.spread(row) for row in np.asarray(unit_devices)]
        over, step_s = np.full(len(rows), FAILED_BYTES, np.int64), np.full(len(rows), np.inf)

        stopped: list[bool] = []

        def share(worker: int) -> None:
            for i in range(worker, len(rows), len(self._processes)):
                if stopped:
                    return
                over[i], step_s[i] = self._cost(self._processes[worker], rows[i]).key

        if self._threads is None:
            # They stay, since a process ends with the thread that started it, the first time or after it was lost.
            self._threads = ThreadPoolExecutor(len(self._processes))
        shares = [self._threads.submit(share, worker) for worker in range(len(self._processes))]
        try:
            for done in shares:
                done.result()
        except BaseException:
            stopped.append(True)
            raise
        finally:
            wait(shares)  # interrupted: a process is not to be asked by two threads
        return over, step_s

    def figures(self, unit_device: ArrayLike) -> tuple[float, float]:
        """Step seconds by Grappler alone and with transfers added; infinite where it failed.

        Raises:
          PlacementError: as when called.
        """
        op_device = self.problem.expand(np.asarray(unit_device))
        try:
            own_s = self._processes[0].own_s(op_device.tolist())
        except _ERRORS:
            own_s = float("inf")
        return own_s, self._cost(self._processes[0], op_device).step_s

    def close(self) -> None:
        """Ends the processes; another question would start them again."""
        for process in self._processes:
            process.close()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def __enter__(self) -> GrapplerEvaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cost(self, process: GrapplerProcess, op_device: IntArray) -> StepCost:
        limit = np.array(self.problem.memory_limit, np.int64)
        try:
            figures = process.figures(op_device.tolist())
        except _ERRORS as error:
            return failed(Failure(_FAILURES[type(error)], str(error)), limit, GRAPPLER)
        compute_s = np.array(figures.compute_s)
        return StepCost(
            step_s=figures.step_s,
            compute_s=compute_s,
            transfer_s=self._transfer_s(figures),
            idle_s=np.maximum(figures.step_s - compute_s, 0.0),
            peak_bytes=self._peak_bytes(figures, op_device),
            limit_bytes=limit,
            moved_bytes=figures.moved_bytes,
            source=GRAPPLER,
        )

    def _transfer_s(self, figures: StepFigures) -> FloatArray:
        """[D] seconds in which at least one of the device's channels is busy."""
        busy: list[list[tuple[float, float]]] = [[] for _ in self.problem.topology.devices]
        for channel, times in figures.channel_s.items():
            for device in self._ends.get(channel, ()):
                busy[device] += times
        return np.array([_union_s(times) for times in busy])

    def _peak_bytes(self, figures: StepFigures, op_device: IntArray) -> LongArray:
        """[D] Grappler's peak of tensors plus the variables; unknown where that cannot be.

        Grappler holds one iteration's tensors of a loop, and nothing in a TensorList, which keeps those of all: graphs
        with loops have no known peak.
        """
        graph = self.problem.graph
        variables = np.bincount(op_device, graph.persistent_bytes, len(self.problem.topology.devices)).astype(np.int64)
        if np.any(graph.trips > 1):
            return np.full(len(variables), UNKNOWN_BYTES, np.int64)
        most = self._plausible_bytes + figures.moved_bytes
        known = [held is not None and 0 <= held <= most for held in figures.peak_bytes]
        peak = np.array([held or 0 for held in figures.peak_bytes], np.int64)
        return np.where(known, peak + variables, UNKNOWN_BYTES)


def _remade(problem: Problem, step: Step, time_out_s: float) -> GrapplerEvaluator:
    """From the step as it was read: the problem's graph does not take its origin along."""
    made = GrapplerEvaluator.__new__(GrapplerEvaluator)
    made._begin(problem, step, time_out_s, workers=1)
    return made


def _step(problem: Problem) -> Step:
    graph, topology = problem.graph, problem.topology
    meta = graph.metagraph()
    try:
        check_graph(meta)
    except GrapplerInputError as error:
        raise GraphError(error.received, error.expected, error.hint) from error
    try:
        devices = tuple(VirtualDevice(d.name, d.type, d.flops["float32"], d.memory_bandwidth) for d in topology.devices)
    except GrapplerInputError as error:
        raise TopologyError(error.received, error.expected, error.hint) from error
    return Step(
        meta=meta.SerializeToString(),
        ops=graph.op_names,
        devices=devices,
        links=tuple(_links(topology)),
        tensors=_tensors(graph),
        executions={graph.op_names[v]: round(float(graph.trips[v])) for v in np.flatnonzero(graph.trips > 1)},
        copied=tuple(graph.op_names[v] for v in np.flatnonzero(graph.replicable)),
    )


def _links(topology: Topology) -> list[Link]:
    return [
        Link(
            src=link.src,
            dst=link.dst,
            bandwidth=link.bandwidth,
            latency_s=link.latency_s,
            channels=tuple(topology.channel_names[c] for c in _channels(topology, link)),
            send_overhead_s=link.send_overhead_s,
            send_overhead_s_per_byte=link.send_overhead_s_per_byte,
            receive_overhead_s=link.receive_overhead_s,
            receive_overhead_s_per_byte=link.receive_overhead_s_per_byte,
        )
        for link in topology.links
    ]


def _channels(topology: Topology, link: Any) -> list[int]:
    row = topology.channels[topology.index(link.src), topology.index(link.dst)]
    return [int(c) for c in row if c >= 0]


def _channel_ends(topology: Topology) -> Mapping[str, set[int]]:
    """Channel -> the devices whose own it is: the first of a link's is the sender's, the second the receiver's."""
    ends: dict[str, set[int]] = {}
    for link in topology.links:
        for channel, device in zip(_channels(topology, link), (link.src, link.dst), strict=False):
            ends.setdefault(topology.channel_names[channel], set()).add(topology.index(device))
    return ends


def _tensors(graph: OpGraph) -> dict[str, Tensor]:
    rows = zip(
        graph.tensor_op.tolist(), graph.tensor_slot.tolist(), graph.tensor_dtype, graph.tensor_bytes, strict=True
    )
    return {f"{graph.op_names[op]}:{slot}": Tensor(dtype, int(size)) for op, slot, dtype, size in rows}


def _union_s(times: list[tuple[float, float]]) -> float:
    total, until = 0.0, 0.0
    for start, seconds in sorted(times):
        total += max(start + seconds - max(start, until), 0.0)
        until = max(until, start + seconds)
    return total
