"""What Grappler says a graph costs on a virtual cluster: step seconds, op performance, peak memory.

Grappler's own scheduler plays one step: a device runs its ready ops one at a time, first ready first run. Moving a
tensor to another device takes no time in it (`grappler_bridge.transfers` adds that), nor does launching an op.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grappler_bridge.check import check_devices, check_graph
from grappler_bridge.cluster import VirtualDevice, device_names, virtual_cluster
from grappler_bridge.errors import grappler_errors
from grappler_bridge.item import grappler_item_of

PLAUSIBLE_BYTES = 2**48
"""More than this on one device is an error of Grappler's, not a need."""

_MICROSECOND, _NANOSECOND = 1e-6, 1e-9


@dataclass(frozen=True)
class OpCost:
    """One op as Grappler costs and schedules it.

    Attributes:
      name: the op.
      type: its type.
      device: full name of its device.
      start_s: when it starts.
      seconds: how long it keeps its device busy, all executions together; to the nanosecond.
      compute_s: operations over the device's rate, for one execution; in whole microseconds, rounded down.
      memory_s: bytes over the memory's bandwidth, for one execution; in whole microseconds, rounded down.
    """

    name: str
    type: str
    device: str
    start_s: float
    seconds: float
    compute_s: float
    memory_s: float


@dataclass(frozen=True)
class GraphCosts:
    """One step of a graph on a virtual cluster.

    Attributes:
      step_s: when the last op ends.
      ops: every op that is run, Grappler's own sends and receives left out.
    """

    step_s: float
    ops: tuple[OpCost, ...]

    def busy_s(self) -> dict[str, float]:
        """Seconds each device is busy."""
        busy: dict[str, float] = {}
        for op in self.ops:
            busy[op.device] = busy.get(op.device, 0.0) + op.seconds
        return busy


@dataclass(frozen=True)
class LiveTensor:
    """A tensor held at the time of the peak.

    Attributes:
      op: the op that made it, or Grappler's own receiver of a copy ("Recv_...").
      slot: which output.
      size_bytes: its size.
    """

    op: str
    slot: int
    size_bytes: int


@dataclass(frozen=True)
class PeakMemory:
    """The most that is held on one device at a time.

    Attributes:
      size_bytes: bytes of tensors, or None where Grappler says nothing that can be true. A tensor counts until a
        nanosecond after its last reader, when the next op has already begun. Variables behind resource handles count
        nothing, but each read of one counts as a new tensor of its size.
      tensors: what is held then; all of it if the op that made it is in the graph.
    """

    size_bytes: int | None
    tensors: tuple[LiveTensor, ...] = ()


def measure_costs(meta: Any, devices: Sequence[VirtualDevice]) -> GraphCosts:
    """Plays one step.

    Args:
      meta: a MetaGraphDef of a flat graph, every op on one of the devices, what to run in its `train_op` collection.
      devices: the cluster.

    Raises:
      GrapplerInputError: a graph or devices that Grappler would crash on or misunderstand.
      GrapplerError: Grappler gave up, for example because a device's memory does not suffice.
    """
    item = _item(meta, devices)
    with virtual_cluster(devices) as cluster, grappler_errors("cost the graph"):
        performance, _, stats = cluster.MeasureCosts(item)
    table = {entry.node: entry for entry in performance}
    ops = tuple(_op_costs(stats, table))
    return GraphCosts(max((op.start_s + op.seconds for op in ops), default=0.0), ops)


def time_measure_costs(meta: Any, devices: Sequence[VirtualDevice], repeats: int = 1) -> float:
    """Wall-clock seconds of one `MeasureCosts` call, the graph read and checked before: the fastest of `repeats`.

    Grappler plays the step twice in each call, once to warm up.

    Raises:
      GrapplerInputError, GrapplerError: as `measure_costs`.
    """
    item = _item(meta, devices)
    best = float("inf")
    with virtual_cluster(devices, timeline=False) as cluster, grappler_errors("cost the graph"):
        for _ in range(repeats):
            begin = time.perf_counter()
            cluster.MeasureCosts(item)
            best = min(best, time.perf_counter() - begin)
    return best


def peak_memory(meta: Any, devices: Sequence[VirtualDevice]) -> dict[str, PeakMemory]:
    """The most bytes of tensors on each device at a time, by its full name.

    Args:
      meta: as for `measure_costs`.
      devices: the cluster; their `memory_bytes` make no difference.

    Raises:
      GrapplerInputError, GrapplerError: as `measure_costs`.
    """
    item = _item(meta, devices)
    roomy = [replace(device, memory_bytes=0) for device in devices]
    with virtual_cluster(roomy) as cluster, grappler_errors("find the peak memory"):
        found = cluster.DeterminePeakMemoryUsage(item)
    return {name: _peak(*found[name]) for name in device_names(devices)}


def supported_devices(meta: Any, devices: Sequence[VirtualDevice]) -> dict[str, tuple[str, ...]]:
    """Op name -> full names of the devices that Grappler says can run it.

    For a virtual cluster that is every device for every op: whether there is a kernel is not looked at.

    Raises:
      GrapplerInputError, GrapplerError: as `measure_costs`; ops need no device here.
    """
    check_graph(meta)
    item = grappler_item_of(meta)
    with virtual_cluster(devices) as cluster, grappler_errors("look up devices"):
        found: Mapping[str, Iterable[str]] = cluster.GetSupportedDevices(item)
    return {op: tuple(sorted(names)) for op, names in found.items()}


def _item(meta: Any, devices: Sequence[VirtualDevice]) -> Any:
    check_graph(meta)
    check_devices(meta, device_names(devices))
    return grappler_item_of(meta)


def _op_costs(stats: Any, table: Mapping[str, Any]) -> Iterable[OpCost]:
    merges: set[str] = set()
    for device in stats.dev_stats:
        for node in device.node_stats:
            entry = table.get(node.node_name)
            if entry is None or node.node_name in merges:  # a send or receive of Grappler's own, or a Merge again
                continue
            seconds = node.all_end_rel_nanos * _NANOSECOND
            if node.timeline_label == "Merge":
                # It runs for each input that arrives; its record spans the first start to the last end.
                merges.add(node.node_name)
                seconds = entry.compute_cost * _NANOSECOND
            yield OpCost(
                name=node.node_name,
                type=node.timeline_label,
                device=device.device,
                start_s=node.all_start_nanos * _NANOSECOND,
                seconds=seconds,
                compute_s=entry.compute_time * _NANOSECOND,
                memory_s=entry.memory_time * _NANOSECOND,
            )


def _peak(size_bytes: int, live: Sequence[tuple[str, int, int, int, int]]) -> PeakMemory:
    tensors = tuple(LiveTensor(op, slot, held) for op, slot, held, _, _ in live)
    if size_bytes == -1 and not tensors:
        return PeakMemory(0)  # nothing runs there
    held = sum(t.size_bytes for t in tensors)
    plausible = 0 <= size_bytes <= PLAUSIBLE_BYTES and all(t.size_bytes >= 0 for t in tensors) and held <= size_bytes
    return PeakMemory(size_bytes if plausible else None, tensors)
