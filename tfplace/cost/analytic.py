"""Op seconds from an analytic roofline (Williams, Waterman and Patterson, CACM 2009).

An op takes its overhead, and then as long as the slower of its arithmetic and its memory traffic:

    seconds = executions * (op_overhead + max(flops / (peak * efficiency), bytes / memory_bandwidth))

`EFFICIENCY` is an assumption, not a measurement: the fraction of peak that kernels of a class reach on large operands.
"""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, LongArray
from tfplace.core.buffers import aliases, reads_that_copy, variable_of, writes_whole
from tfplace.core.costs import CostTable
from tfplace.core.device import Device
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.flops import COPY, FUNCTION, NOTHING, VIEW, Op, rule_of

EFFICIENCY = {"conv": 0.5, "matmul": 0.6, "depthwise": 0.1, "linalg": 0.1}
"""Class -> fraction of the peak rate; `OTHER_EFFICIENCY` for the rest, which memory traffic bounds anyway."""

OTHER_EFFICIENCY = 0.25


def analytic_costs(graph: OpGraph, topology: Topology) -> CostTable:
    """Seconds of every op on every device.

    Ops that only name, reshape or pass on a value, and ops whose GPU kernel works in host memory, cost the overhead
    alone; replicable constants cost nothing. So do views, while dense reads of variables whose rows are written cost a
    copy (`tfplace.core.buffers`). What keeps a function takes the sum of the function's ops beside its own overhead, as
    often as that runs. What writes variables whole reads and writes all of them: of an Adam update that is
    the weight and both slots, beside the gradient. Where an op has no kernel for a device's type the number is what
    such a kernel would take.

    Args:
      graph: [V] ops.
      topology: [D] devices.
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
    traffic = np.array(
        [
            _traffic_bytes(graph, v, name) if name not in (NOTHING, FUNCTION[0]) else 0
            for v, (name, _) in enumerate(rules)
        ]
    )
    traffic += 2 * _updated_bytes(graph)
    efficiency = np.array([EFFICIENCY.get(name, OTHER_EFFICIENCY) for name, _ in rules])
    columns = [_seconds(graph, device, flops, traffic, efficiency) for device in topology.devices]
    seconds = np.stack(columns, axis=1)
    for body in graph.bodies:
        if body.graph is not None:
            inside = analytic_costs(body.graph, topology).compute_s.sum(axis=0)
            seconds[body.op] += graph.trips[body.op] * body.runs * inside
    return CostTable(seconds, tuple(f"analytic:{name}" for name, _ in rules))


def _seconds(
    graph: OpGraph, device: Device, flops: FloatArray, traffic: FloatArray, efficiency: FloatArray
) -> FloatArray:
    peak = np.array([device.flops.get(_dtype(graph, v), device.flops["float32"]) for v in range(graph.num_ops)])
    work = np.maximum(flops / (peak * efficiency), traffic / device.memory_bandwidth)
    if device.type != "CPU":
        work = np.where(graph.host_memory, 0.0, work)
    return np.where(graph.replicable, 0.0, graph.trips * (device.op_overhead_s + work))


def _updated_bytes(graph: OpGraph) -> LongArray:
    """[V] bytes of the variables that an op changes; one that is only assigned takes the memory it is given."""
    handle, size = variable_of(graph), graph.persistent_bytes
    out = np.zeros(graph.num_ops, np.int64)
    for v, kind in enumerate(graph.op_types):
        if writes_whole(kind) and kind != "AssignVariableOp":
            out[v] = sum(int(size[handle[t]]) for t in graph.inputs[v] if handle[t] >= 0)
    return out


def _dtype(graph: OpGraph, v: int) -> str:
    """The type an op computes in: that of its first output, or of its first input if it has none."""
    first = int(graph.op_tensors[v])
    if first < graph.op_tensors[v + 1]:
        return graph.tensor_dtype[first]
    return graph.tensor_dtype[graph.inputs[v][0]] if graph.inputs[v] else "float32"


def _traffic_bytes(graph: OpGraph, v: int, name: str) -> int:
    """Bytes read and written by one execution."""
    written = graph.tensor_bytes[graph.op_tensors[v] : graph.op_tensors[v + 1]].sum()
    read = graph.tensor_bytes[list(graph.inputs[v])].sum() if graph.inputs[v] else 0
    if name == "move":
        read = min(read, written)  # a slice or a gather reads what it writes, not all it could read
    elif name == "copy":
        read = written
    return int(read + written)
