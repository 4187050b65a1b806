"""What TensorFlow's tracer says of one step: which op ran where and when, what moved, how much memory was in use.

A session's `RunMetadata` under `FULL_TRACE` has, per device, a record for every execution of an op, and for every
tensor received from another process. Tensors handed over within a process leave none.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.graph import OpGraph
from tfplace.core.stepcost import MEASURED
from tfplace.core.timeline import Timeline
from tfplace.errors import PlacementError
from tfplace.execution.devices import canonical

# "[1.0MB] [13.0Gb/s] edge_11_dense/MatMul from /job:a/... to /job:b/...": sizes are rounded here, exact in the record
_TRANSFER = re.compile(r"(?:edge_\d+_)(?P<op>\S+) from (?P<src>\S+) to (?P<dst>\S+)")
RECEIVES = frozenset({"RecvTensor", "RecvBufTensor"})
_BOOKKEEPING = frozenset({"_SOURCE", "_SINK"})
_STREAM = re.compile(r"/device:GPU:\d+/stream:all$")
_HALF_MICROSECOND = 500
"""Nanoseconds that a kernel is longer than its record in the mean: that has whole microseconds, rounded down."""
_GPU = "/device:GPU:"
_PART = re.compile(r"/(stream|memcpy)")


@dataclass(frozen=True)
class Transfer:
    """A tensor received from another process.

    Attributes:
      op: name of the op whose output, or completion, it is.
      src: full name of the device it came from.
      dst: full name of the device it went to.
      size_bytes: bytes.
      start_s: when the sender began to send, in seconds since the step's start.
      finish_s: when the receiver had it.
    """

    op: str
    src: str
    dst: str
    size_bytes: int
    start_s: float
    finish_s: float


@dataclass(frozen=True, eq=False)
class StepStats:
    """One traced step; times are in seconds since its first record. [N] executions of ops, [M] looks at memory.

    An op in a loop has an execution per iteration. TensorFlow adds ops of its own: names are as it gives them, without
    what it appends on a GPU.

    Attributes:
      names: [N] op names.
      devices: [N] full device names.
      start_s: [N] when the kernel started.
      finish_s: [N] when it ended; on a GPU, when the host had launched it.
      kernel_s: [N] seconds of the kernel itself: on a GPU those of its stream, elsewhere `finish_s - start_s`.
      transfers: tensors received.
      memory_s: [M] when an op ended that allocated.
      memory_device: [M] full device names.
      memory_bytes: [M] bytes the device's allocator had handed out then.
    """

    names: tuple[str, ...]
    devices: tuple[str, ...]
    start_s: FloatArray
    finish_s: FloatArray
    kernel_s: FloatArray
    transfers: tuple[Transfer, ...]
    memory_s: FloatArray
    memory_device: tuple[str, ...]
    memory_bytes: LongArray

    @cached_property
    def seconds(self) -> Mapping[str, tuple[float, int]]:
        """Op name -> (kernel seconds of all its executions, how many)."""
        out: dict[str, tuple[float, int]] = {}
        for name, seconds in zip(self.names, self.kernel_s.tolist(), strict=True):
            total, count = out.get(name, (0.0, 0))
            out[name] = total + seconds, count + 1
        return out


@dataclass(frozen=True)
class _Record:
    """An execution in nanoseconds of the system's clock."""

    name: str
    device: str
    start: int
    finish: int
    kernel: int


def read_stats(metadata: Any) -> StepStats:
    """Reads a `RunMetadata`.

    On a GPU an op's kernel time is the sum of its records on the streams ("/device:GPU:0/stream:all"), named "op:Type".
    They are kept by the physical GPU, ops by the logical one; an op of a step runs on one of them only.

    Args:
      metadata: of a run under `FULL_TRACE`.
    """
    records: list[_Record] = []
    received: list[tuple[str, Any]] = []
    memory: list[tuple[int, str, int]] = []
    on_stream: dict[str, int] = {}
    for part in metadata.step_stats.dev_stats:
        stream = _STREAM.search(part.device)
        for node in part.node_stats:
            if stream:
                op = node.node_name.rpartition(":")[0]
                on_stream[op] = on_stream.get(op, 0) + 1000 * int(node.op_end_rel_micros) + _HALF_MICROSECOND
            elif node.node_name in RECEIVES:
                received.append((canonical(part.device), node))
            elif not _PART.search(part.device) and node.node_name not in _BOOKKEEPING:
                records.append(_record(node, canonical(part.device)))
                memory += _memory(node, records[-1])
    origin = min((r.start for r in records), default=0)
    records = sorted(_with_streams(records, on_stream), key=lambda r: r.start)
    memory.sort()
    return StepStats(
        names=tuple(r.name for r in records),
        devices=tuple(r.device for r in records),
        start_s=_since(origin, (r.start for r in records)),
        finish_s=_since(origin, (r.finish for r in records)),
        kernel_s=_since(0, (r.kernel for r in records)),
        transfers=tuple(t for device, node in received if (t := _transfer(node, device, origin))),
        memory_s=_since(origin, (m[0] for m in memory)),
        memory_device=tuple(m[1] for m in memory),
        memory_bytes=np.array([m[2] for m in memory], np.int64),
    )


def _since(origin: int, times: Iterable[int]) -> FloatArray:
    return np.array([t - origin for t in times], np.float64) * 1e-9


def _length(node: Any) -> int:
    return int(node.op_end_rel_nanos - node.op_start_rel_nanos) or 1000 * int(node.op_end_rel_micros)


def _record(node: Any, device: str) -> _Record:
    start = node.all_start_nanos + node.op_start_rel_nanos
    length = _length(node)
    return _Record(node.node_name, device, start, start + length, length)


def _with_streams(records: list[_Record], on_stream: Mapping[str, int]) -> list[_Record]:
    """Kernel times of GPUs from their streams, if there are any; an op that launched nothing there has none."""
    return [
        dataclasses.replace(r, kernel=on_stream.get(r.name, 0)) if on_stream and _GPU in r.device else r
        for r in records
    ]


def _memory(node: Any, record: _Record) -> list[tuple[int, str, int]]:
    """Bytes in use on the op's own device when it ended, if it allocated and the allocator keeps count."""
    gpu = _GPU in record.device
    used = [m.allocator_bytes_in_use for m in node.memory if m.allocator_name.startswith("GPU_") == gpu]
    return [(record.finish, record.device, sum(used))] if any(used) else []


def _transfer(node: Any, device: str, origin: int) -> Transfer | None:
    found = _TRANSFER.search(node.timeline_label)
    if found is None:
        return None
    size = sum(out.tensor_description.allocation_description.requested_bytes for out in node.output)
    start = (1000 * node.all_start_micros - origin) * 1e-9  # of transfers the tracer knows microseconds only
    finish = start + 1e-6 * node.op_end_rel_micros
    return Transfer(found["op"], canonical(found["src"]), device, size, max(start, 0.0), max(finish, start, 0.0))


def measured_timeline(
    metadata: Any,
    graph: OpGraph,
    device_names: Sequence[str],
    placement: Mapping[str, str],
    *,
    devices: Mapping[str, str] | None = None,
) -> Timeline:
    """A traced step as a timeline.

    Ops of one device may overlap. An op in a loop lasts from its first execution's start to its last one's end. Ops
    that did not run (constants copied to their readers, branches not taken) have no length and count as `replicated`.

    Args:
      metadata: of a run under `FULL_TRACE`.
      graph: [V] ops.
      device_names: [D] the placement's devices.
      placement: op name -> placement's device, for every op.
      devices: placement's device -> TensorFlow's; by default the same names.

    Raises:
      PlacementError: a device that is not among `device_names`, or an op without one.
    """
    stats = read_stats(metadata)
    index = {name: d for d, name in enumerate(device_names)}
    where = {canonical((devices or {}).get(name, name)): d for name, d in index.items()}
    op_device = _op_devices(graph, index, placement)
    start, finish = np.full(graph.num_ops, np.inf), np.zeros(graph.num_ops)
    for name, began, ended in zip(stats.names, stats.start_s.tolist(), stats.finish_s.tolist(), strict=True):
        v = graph.index.get(name)
        if v is not None and not graph.replicable[v]:
            start[v], finish[v] = min(start[v], began), max(finish[v], ended)
    ran = np.isfinite(start)
    moved = [t for t in stats.transfers if t.src in where and t.dst in where]
    seen = [m for m, device in enumerate(stats.memory_device) if device in where]
    return Timeline(
        device_names=tuple(device_names),
        op_names=graph.op_names,
        op_types=graph.op_types,
        op_device=op_device,
        start_s=np.where(ran, start, 0.0),
        finish_s=finish,
        moved=tuple(t.op for t in moved),
        moved_bytes=np.array([t.size_bytes for t in moved], np.int64),
        moved_src=np.array([where[t.src] for t in moved], np.int32),
        moved_dst=np.array([where[t.dst] for t in moved], np.int32),
        moved_start_s=np.array([t.start_s for t in moved]),
        moved_finish_s=np.array([t.finish_s for t in moved]),
        memory_s=stats.memory_s[seen],
        memory_device=np.array([where[stats.memory_device[m]] for m in seen], np.int32),
        memory_bytes=stats.memory_bytes[seen],
        replicated=~ran,
        source=MEASURED,
    )


def _op_devices(graph: OpGraph, index: Mapping[str, int], placement: Mapping[str, str]) -> IntArray:
    for name in graph.op_names:
        if placement.get(name) not in index:
            raise PlacementError(f"{name} on {placement.get(name)!r}", f"a device among {', '.join(index)}")
    return np.array([index[placement[name]] for name in graph.op_names], np.int32)
