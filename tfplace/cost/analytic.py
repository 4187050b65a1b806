"""Op seconds from an analytic roofline (Williams, Waterman and Patterson, CACM 2009).

An op takes its overhead, and then as long as the slower of its arithmetic and its memory traffic:

    seconds = executions * (op_overhead + max(flops / (peak * efficiency), bytes / memory_bandwidth))

`EFFICIENCY` is an assumption, not a measurement: the fraction of peak that kernels of a class reach on large operands.
"""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray
from tfplace.core.costs import CostTable
from tfplace.core.device import Device
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.work import OpWork, computing_dtypes, op_work

EFFICIENCY = {"conv": 0.5, "matmul": 0.6, "depthwise": 0.1, "linalg": 0.1}
"""Class -> fraction of the peak rate; `OTHER_EFFICIENCY` for the rest, which memory traffic bounds anyway."""

OTHER_EFFICIENCY = 0.25


def analytic_costs(graph: OpGraph, topology: Topology) -> CostTable:
    """Seconds of every op on every device.

    Ops that only name, reshape or pass on a value, and ops whose GPU kernel works in host memory, cost the overhead
    alone; replicable constants cost nothing. `op_work` says what counts as work. What keeps a function takes the sum of
    the function's ops beside its own overhead, as often as that runs. Where an op has no kernel for a device's type the
    number is what such a kernel would take.

    Args:
      graph: [V] ops.
      topology: [D] devices.
    """
    work = op_work(graph)
    columns = [_seconds(graph, device, work) for device in topology.devices]
    seconds = np.stack(columns, axis=1)
    for body in graph.bodies:
        if body.graph is not None:
            inside = analytic_costs(body.graph, topology).compute_s.sum(axis=0)
            seconds[body.op] += graph.trips[body.op] * body.runs * inside
    return CostTable(seconds, tuple(f"analytic:{kind}" for kind in work.kind))


def _seconds(graph: OpGraph, device: Device, work: OpWork) -> FloatArray:
    busy = np.maximum(arithmetic_s(graph, device, work), work.traffic_bytes / device.memory_bandwidth)
    if device.type != "CPU":
        busy = np.where(graph.host_memory, 0.0, busy)
    return np.where(graph.replicable, 0.0, graph.trips * (device.op_overhead_s + busy))


def arithmetic_s(graph: OpGraph, device: Device, work: OpWork) -> FloatArray:
    """[V] seconds that the operations of one execution take on a device, if they wait for no memory."""
    dtypes = computing_dtypes(graph)
    peak = {dtype: device.flops.get(dtype, device.flops["float32"]) for dtype in set(dtypes)}
    rate = [peak[dtype] * EFFICIENCY.get(kind, OTHER_EFFICIENCY) for dtype, kind in zip(dtypes, work.kind, strict=True)]
    seconds: FloatArray = work.flops / np.array(rate)
    return seconds
