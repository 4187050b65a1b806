"""Memory that an op takes while it runs, besides what it reads and makes.

What an accelerator's convolutions take is their library's choice at run time: for that each device has
`Device.workspace_bytes`. The rules here are those of kernels that always do the same; each was seen in the allocation
records of TensorFlow's tracer (`python -m research.benchmarks.memory`).
"""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import LongArray
from tfplace.core.buffers import variable_of, variables_written_by_rows, writes_whole
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.flops import rule_of

_HALF = frozenset({"bfloat16", "float16"})
_POOLS = frozenset({"MaxPool", "MaxPoolV2"})


def workspace_bytes(graph: OpGraph, topology: Topology) -> LongArray:
    """[V, D] bytes of each op on each device.

    - `Einsum` transposes all of its operands but the largest.
    - Products of half precision are computed in single precision on a CPU, from and into copies.
    - The largest of each window of `MaxPool` is kept by its place, a byte each, on a CPU.
    - What writes a variable whole, rows of which others write in place, makes a copy of it.

    Args:
      graph: [V] ops.
      topology: [D] devices.
    """
    anywhere, on_cpu = np.zeros(graph.num_ops, np.int64), np.zeros(graph.num_ops, np.int64)
    scattered, handle = variables_written_by_rows(graph), variable_of(graph)
    for v, kind in enumerate(graph.op_types):
        if kind == "Einsum":
            sizes = _sizes(graph, v)
            anywhere[v] = sum(sizes) - max(sizes, default=0)
        if kind in _POOLS and graph.op_tensors[v] < graph.op_tensors[v + 1]:
            on_cpu[v] = int(np.prod(graph.tensor_shape[graph.op_tensors[v]] or (), dtype=np.int64))
        if rule_of(kind)[0] in ("conv", "matmul") and _dtype(graph, v) in _HALF:
            on_cpu[v] = 2 * sum(_sizes(graph, v))
        if scattered and writes_whole(kind):
            written = {int(handle[t]) for t in graph.inputs[v]} & scattered
            anywhere[v] = sum(int(graph.persistent_bytes[op]) for op in written)
    cpu = np.array([device.type == "CPU" for device in topology.devices])
    return np.ascontiguousarray(anywhere[:, None] + np.where(cpu, on_cpu[:, None], 0))


def _sizes(graph: OpGraph, v: int) -> list[int]:
    """Bytes of what an op reads and makes."""
    made = graph.tensor_bytes[graph.op_tensors[v] : graph.op_tensors[v + 1]].tolist()
    return [*graph.tensor_bytes[list(graph.inputs[v])].tolist(), *made] if graph.inputs[v] else made


def _dtype(graph: OpGraph, v: int) -> str:
    first = int(graph.op_tensors[v])
    return graph.tensor_dtype[first] if first < graph.op_tensors[v + 1] else ""
