"""Topologies, costs and Problems for tests: written by hand or drawn at random. No TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.device import Device, Link
from tfplace.core.graph import OpGraph
from tfplace.core.grouping import Grouping
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.testing.graphs import random_graph


def make_topology(
    num_devices: int,
    *,
    types: str | Sequence[str] = "GPU",
    memory: int | Sequence[int] = 16 * 2**30,
    speed: float | Sequence[float] = 1.0,
    duplex: str | Sequence[str] = "full",
    bandwidth: float | Mapping[tuple[int, int], float] = 10e9,
    latency: float | Mapping[tuple[int, int], float] = 10e-6,
    shared: Mapping[tuple[int, int], Sequence[str]] | None = None,
    ports: Mapping[tuple[int, int], str] | None = None,
    name: str = "made",
) -> Topology:
    """`num_devices` devices with a link for every ordered pair, named by type: "GPU:0", "GPU:1", "CPU:0".

    Args:
      num_devices: D.
      types: device type, one for all or one each.
      memory: bytes, one for all or one each.
      speed: 1.0 is 10 TFLOP/s and 500 GB/s, one for all or one each.
      duplex: "full" or "half", one for all or one each.
      bandwidth: bytes per second, one for all or by (source, destination) with 10 GB/s for those left out.
      latency: seconds, one for all or by (source, destination) with 10 us for those left out.
      shared: (source, destination) -> channels its link shares with others.
      ports: (source, destination) -> port its link uses.
      name: name of the topology.

    >>> make_topology(3, types=["CPU", "GPU", "GPU"]).device_names
    ('CPU:0', 'GPU:0', 'GPU:1')
    """
    each = zip(
        *(_one_each(v, num_devices) for v in (types, memory, speed, duplex)),
        strict=True,
    )
    devices: list[Device] = []
    for kind, size, factor, ways in each:
        number = sum(d.type == kind for d in devices)
        flops = {"float32": 10e12 * factor}
        devices.append(Device(f"{kind}:{number}", kind, size, flops, 500e9 * factor, 5e-6, duplex=ways))
    links = [
        Link(
            devices[a].name,
            devices[b].name,
            bandwidth.get((a, b), 10e9) if isinstance(bandwidth, Mapping) else bandwidth,
            latency.get((a, b), 10e-6) if isinstance(latency, Mapping) else latency,
            port=(ports or {}).get((a, b), "main"),
            shared=tuple((shared or {}).get((a, b), ())),
        )
        for a, b in itertools.permutations(range(num_devices), 2)
    ]
    return Topology(name, tuple(devices), tuple(links))


def _one_each(value: object, count: int) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else [value] * count


def random_topology(
    rng: np.random.Generator,
    num_devices: int,
    *,
    unit: float = 1.0,
    bytes_per_unit: float = 500.0,
) -> Topology:
    """Device 0 is a CPU, the others mostly GPUs; links differ, some are half duplex, share channels or have own ports.

    Args:
      rng: source of all randomness.
      num_devices: D.
      unit: the order of magnitude of latencies, in seconds; about 0 to 1 of it.
      bytes_per_unit: bytes a typical link moves in one `unit`.
    """
    pairs = list(itertools.permutations(range(num_devices), 2))
    return make_topology(
        num_devices,
        types=["CPU"] + ["GPU" if rng.random() < 0.8 else "CPU" for _ in range(num_devices - 1)],
        memory=rng.integers(2_000, 10_000, num_devices).tolist(),
        speed=rng.choice([0.5, 1.0, 2.0], num_devices).tolist(),
        duplex=["half" if rng.random() < 0.3 else "full" for _ in range(num_devices)],
        bandwidth={pair: float(rng.choice([0.5, 1.0, 2.0])) * bytes_per_unit / unit for pair in pairs},
        latency={pair: float(rng.choice([0.0, 0.25, 1.0])) * unit for pair in pairs},
        shared={pair: ("switch",) for pair in pairs if rng.random() < 0.2},
        ports={pair: "side" for pair in pairs if rng.random() < 0.2},
        name="random",
    )


def make_problem(
    graph: OpGraph,
    topology: Topology,
    seconds: FloatArray | Sequence[float] | Mapping[str, float] | float = 1.0,
    *,
    memory_limit: Sequence[int] | None = None,
    allowed: BoolArray | None = None,
) -> Problem:
    """A problem in which every op is its own unit, but for ops that touch the same resource.

    Args:
      graph: the ops.
      topology: the devices.
      seconds: [V, D] op seconds; or [V], the same on every device; or op name -> seconds (0 for the rest); or one for
        every op.
      memory_limit: [D] bytes; by default the devices' memory.
      allowed: [U, D]; by default where all ops of the unit have a kernel.
    """
    if isinstance(seconds, Mapping):
        seconds = [seconds.get(op, 0.0) for op in graph.op_names]
    shape = (graph.num_ops, len(topology.devices))
    table = np.asarray(seconds, np.float64)
    table = np.broadcast_to(table[:, None] if table.ndim == 1 else table, shape).copy()
    grouping = _units_by_resource(graph)
    limits = [d.memory_bytes for d in topology.devices] if memory_limit is None else memory_limit
    return Problem(
        graph=graph,
        topology=topology,
        costs=CostTable(table, ("given",) * graph.num_ops),
        constraints=Constraints(),
        grouping=grouping,
        allowed=_kernels(graph, topology, grouping) if allowed is None else allowed,
        memory_limit=np.asarray(limits, np.int64),
        follows=_followed(graph),
    )


def _units_by_resource(graph: OpGraph) -> Grouping:
    unit_of = np.full(graph.num_ops, -1, np.int32)
    of_resource: dict[int, int] = {}
    count = 0
    for op, resource in enumerate(graph.resource.tolist()):
        if graph.replicable[op]:
            continue
        unit_of[op] = of_resource.get(resource, count) if resource >= 0 else count
        if resource >= 0:
            of_resource.setdefault(resource, count)
        count += int(unit_of[op] == count)
    return Grouping(unit_of, count)


def _kernels(graph: OpGraph, topology: Topology, grouping: Grouping) -> BoolArray:
    columns = [graph.kernel_types.index(d.type) for d in topology.devices]
    per_op = graph.has_kernel[:, columns]
    return np.array([per_op[ops].all(axis=0) for ops in grouping.members], np.bool_).reshape(-1, len(columns))


def _followed(graph: OpGraph) -> IntArray:
    follows = np.arange(graph.num_ops, dtype=np.int32)
    for src, dst in sorted(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True), reverse=True):
        if graph.replicable[src] and not graph.replicable[dst]:
            follows[src] = dst
    return follows


def random_problem(
    rng: np.random.Generator,
    num_ops: int = 20,
    num_devices: int = 3,
    *,
    graph: OpGraph | None = None,
    topology: Topology | None = None,
    ties: bool = True,
    tight: bool = False,
    unit: float = 1.0,
) -> Problem:
    """A random problem; every unit may be on device 0, so there is always a placement (that it fits is not promised).

    Args:
      rng: source of all randomness.
      num_ops: V, if no graph is given.
      num_devices: D, if no topology is given.
      graph: instead of a random one.
      topology: instead of a random one.
      ties: op seconds are small multiples of `unit`, many of them equal or 0; else all differ.
      tight: memory limits that only spreading over devices keeps; else limits nothing reaches.
      unit: the order of magnitude of op seconds and latencies, in seconds.
    """
    graph = random_graph(rng, num_ops) if graph is None else graph
    topology = random_topology(rng, num_devices, unit=unit) if topology is None else topology
    shape = (graph.num_ops, len(topology.devices))
    if ties:
        seconds = rng.choice([0.0, 0.5, 1.0, 1.0, 2.0], shape) * unit
    else:
        speed = rng.choice([0.5, 1.0, 2.0], shape[1])
        seconds = rng.lognormal(0.0, 1.0, shape[0])[:, None] * unit / speed
    total = int(graph.tensor_bytes.sum() + graph.persistent_bytes.sum())
    limit = max(1, total // 2 if tight else 2 * total)
    return make_problem(graph, topology, seconds, memory_limit=[limit] * shape[1])


def random_devices(rng: np.random.Generator, problem: Problem) -> IntArray:
    """[U] a device for each unit, drawn among those it may be on."""
    devices: IntArray = np.argmax(rng.random(problem.allowed.shape) * problem.allowed, axis=1).astype(np.int32)
    return devices
