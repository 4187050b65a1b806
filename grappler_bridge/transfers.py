"""Transfers between devices, written into the graph as ops that Grappler's own scheduler queues.

Grappler sends a tensor to another device in a nanosecond, whatever its size. So a graph is rewritten before it is
costed: for everything that has to reach another device, once per destination, there are ops that do nothing but take
time. Each of them is a scalar `Const`, which Grappler costs at one nanosecond, with the attribute by which Grappler is
told how often an op runs: as often as there are nanoseconds in the transfer. They run, in this order,

1. on the sending device, for the link's send overhead;
2. on each channel that the link occupies, which is a device of its own in the cluster, for latency + bytes / bandwidth;
3. on the receiving device, for the link's receive overhead;

and then an `Identity` on the receiving device passes the tensor on to the readers there: it is the copy that Grappler
counts as held until the last of them is done. A channel thus serves one transfer at a time, the one that was ready
first. A transfer that occupies several channels takes its time on each of them but not always at the same moment: it
has arrived when the last has served it. Where nothing else is sent that is exact; where channels are contended a
transfer may seem to start on one before the other is free, which a simulation that holds all channels at once would not
allow.

Grappler takes an op to be ready when the last of its inputs *in the order in which it plays ops* is done, which is not
always the last to be done. That goes wrong for control edges between devices alone, since tensors are received by an op
on the reader's own device. So what the channels send is joined by an op that reads them, on a device that does nothing
else and is never late; only its control edge crosses devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from grappler_bridge.check import EXECUTIONS, MAX_EXECUTIONS, fetched_ops, input_op
from grappler_bridge.cluster import VirtualDevice, device_names, full_name
from grappler_bridge.errors import GrapplerInputError
from grappler_bridge.item import infer_properties

_CHANNEL, _JOINT = "CHANNEL", "JOINT:0"
_GIGA = 1e9
_CONTROL = -1


@dataclass(frozen=True)
class Link:
    """A directed way from one device to another.

    Attributes:
      src: sending device.
      dst: receiving device.
      bandwidth: bytes per second.
      latency_s: seconds added to every transfer.
      channels: names of what a transfer occupies; links that share a name wait for one another.
      send_overhead_s: seconds for which each transfer keeps the sending device from computing.
      send_overhead_s_per_byte: the part of it that grows with the size.
      receive_overhead_s: the same at the receiving device.
      receive_overhead_s_per_byte: the same at the receiving device.
    """

    src: str
    dst: str
    bandwidth: float
    latency_s: float
    channels: tuple[str, ...]
    send_overhead_s: float = 0.0
    send_overhead_s_per_byte: float = 0.0
    receive_overhead_s: float = 0.0
    receive_overhead_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        where = f"link {self.src} -> {self.dst}"
        if not self.bandwidth > 0:
            raise GrapplerInputError(f"bandwidth {self.bandwidth!r} of {where}", "bandwidth above 0")
        overheads = (self.send_overhead_s, self.send_overhead_s_per_byte, self.receive_overhead_s)
        if not all(0 <= s < math.inf for s in (self.latency_s, *overheads, self.receive_overhead_s_per_byte)):
            raise GrapplerInputError(f"a latency or overhead of {where}", "finite seconds of at least 0")
        if not self.channels:
            raise GrapplerInputError(
                f"no channels of {where}", "at least one", "A link with a channel of its own never queues."
            )


@dataclass(frozen=True)
class Tensor:
    """What has to be known of a tensor that is sent.

    Attributes:
      dtype: name of its type, such as "float32"; of a reference, what it refers to.
      size_bytes: bytes of one execution's output.
    """

    dtype: str
    size_bytes: int


@dataclass(frozen=True)
class WithTransfers:
    """A graph in which transfers take time, and the cluster for it.

    Attributes:
      meta: the MetaGraphDef.
      devices: the cluster with a device per channel.
      channels: channel -> full name of the device that stands for it.
      moved_bytes: bytes sent in a step.
      count: transfers in a step, those of loops once.
    """

    meta: Any
    devices: tuple[VirtualDevice, ...]
    channels: Mapping[str, str]
    moved_bytes: int
    count: int


def add_transfers(
    meta: Any, devices: Sequence[VirtualDevice], links: Iterable[Link], tensors: Mapping[str, Tensor] | None = None
) -> WithTransfers:
    """Makes transfers take time.

    Left out are edges that close a loop, which are no precedence within a step, and what a fetched `NoOp` waits for.

    Args:
      meta: a checked MetaGraphDef, its ops on `devices`; not changed.
      devices: the cluster.
      links: one for every ordered pair of devices between which something is sent.
      tensors: "op:slot" -> its type and size; by default as Grappler infers them, unknown dimensions as 1.

    Raises:
      GrapplerInputError: something is sent where there is no link, or a tensor of which nothing is known.
    """
    device_names(devices)
    out = tf.compat.v1.MetaGraphDef()
    out.CopyFrom(meta)
    writer = _Writer(out, devices, links, infer_tensors(meta) if tensors is None else tensors)
    unsent = set(fetched_ops(meta))
    for reader in list(out.graph_def.node):
        if not (reader.op == "NoOp" and reader.name in unsent):
            writer.wait_for_inputs(reader)
    return writer.result()


def infer_tensors(meta: Any) -> dict[str, Tensor]:
    """Tensor "op:slot" -> its type and size, as Grappler infers them; unknown dimensions count as 1."""
    found = {}
    for op, outputs in infer_properties(meta.graph_def, fetched_ops(meta)).items():
        for slot, known in enumerate(outputs):
            elements = math.prod(abs(d) for d in known.shape or ())  # -1 where unknown
            found[f"{op}:{slot}"] = Tensor(known.dtype.base_dtype.name, elements * max(known.dtype.size, 1))
    return found


class _Writer:
    """Adds ops that take time to a graph."""

    def __init__(
        self, meta: Any, devices: Sequence[VirtualDevice], links: Iterable[Link], tensors: Mapping[str, Tensor]
    ) -> None:
        self._meta = meta
        self._tensors = tensors
        self._links = {(full_name(link.src), full_name(link.dst)): link for link in links}
        self._nodes = {node.name: node for node in meta.graph_def.node}
        self._index = {node.name: i for i, node in enumerate(meta.graph_def.node)}
        self._place = {name: full_name(name) for name in {node.device for node in meta.graph_def.node} if name}
        self._devices = [*devices, _one_operation_a_nanosecond(_JOINT)]
        # The least an op takes on a device: one operation.
        self._tick_ns = {full_name(d.name): math.ceil(_GIGA / d.flops) for d in self._devices}
        self._channels: dict[str, str] = {}
        self._arrived: dict[tuple[str, int, str], str] = {}
        self._moved_bytes = 0

    def wait_for_inputs(self, reader: Any) -> None:
        """Lets an op wait for the transfers of what it reads from other devices."""
        here = self._place[reader.device]
        for i, text in enumerate(list(reader.input)):
            src = self._nodes[input_op(text)]
            if not src.device or self._place[src.device] == here or src.op in ("NextIteration", "RefNextIteration"):
                continue
            slot = _CONTROL if text.startswith("^") else int(text.partition(":")[2] or 0)
            reader.input[i] = self._sent(src, slot, here)

    def result(self) -> WithTransfers:
        """The graph as it is now."""
        return WithTransfers(self._meta, tuple(self._devices), self._channels, self._moved_bytes, len(self._arrived))

    def _sent(self, src: Any, slot: int, dst: str) -> str:
        """What an op on another device reads, or waits for, instead of an output of `src` or its completion."""
        key = (src.name, slot, dst)
        if key not in self._arrived:
            self._arrived[key] = self._send(src, slot, dst)
        return self._arrived[key]

    def _send(self, src: Any, slot: int, dst: str) -> str:
        link = self._links.get((self._place[src.device], dst))
        if link is None:
            raise GrapplerInputError(f"{src.name!r} on {src.device}, read on {dst}", "a link between the two devices")
        tensor = self._tensor(src.name, slot) if slot != _CONTROL else None
        size = tensor.size_bytes if tensor else 0
        times = src.attr[EXECUTIONS].i if EXECUTIONS in src.attr else 1
        self._moved_bytes += times * size
        label = f"transfer/{self._index[src.name]:06d}/{'done' if tensor is None else slot}/to{len(self._arrived):06d}"
        sending = times * (link.send_overhead_s + size * link.send_overhead_s_per_byte)
        moving = times * (link.latency_s + size / link.bandwidth)
        receiving = times * (link.receive_overhead_s + size * link.receive_overhead_s_per_byte)
        begin = self._occupy(self._place[src.device], sending, f"{label}/send", f"^{src.name}")
        served = [
            self._occupy(self._channel(channel), moving, f"{label}/{i}", begin)
            for i, channel in enumerate(dict.fromkeys(link.channels))
        ]
        arrived = begin if served[0] == begin else self._join(served, f"{label}/arrived")
        arrived = self._occupy(dst, receiving, f"{label}/receive", arrived)
        return arrived if tensor is None else self._copy(f"{src.name}:{slot}", tensor, dst, arrived, f"{label}/copy")

    def _tensor(self, op: str, slot: int) -> Tensor:
        if f"{op}:{slot}" not in self._tensors:
            raise GrapplerInputError(
                f"tensor '{op}:{slot}', which is not described", "type and size of every tensor that is sent"
            )
        return self._tensors[f"{op}:{slot}"]

    def _channel(self, name: str) -> str:
        if name not in self._channels:
            device = _one_operation_a_nanosecond(f"{_CHANNEL}:{len(self._channels)}")
            self._devices.append(device)
            self._channels[name] = full_name(device.name)
            self._tick_ns[full_name(device.name)] = 1
        return self._channels[name]

    def _occupy(self, device: str, seconds: float, label: str, after: str) -> str:
        """A control input that waits until the device, after `after`, was busy for so long; `after` if for no time."""
        ticks = round(seconds * _GIGA / self._tick_ns[device])
        for part in range(math.ceil(ticks / MAX_EXECUTIONS)):
            node = self._add(f"{label}/{part}" if part else label, "Const", device, [after])
            node.attr["dtype"].type = tf.float32.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0.0))
            node.attr[EXECUTIONS].i = min(ticks - part * MAX_EXECUTIONS, MAX_EXECUTIONS)
            after = f"^{node.name}"
        return after

    def _join(self, after: list[str], label: str) -> str:
        """A control input that waits for ops on several devices, by reading their outputs."""
        node = self._add(label, "IdentityN", full_name(_JOINT), [name.removeprefix("^") for name in after])
        node.attr["T"].list.type.extend([tf.float32.as_datatype_enum] * len(after))
        return f"^{label}"

    def _copy(self, text: str, tensor: Tensor, device: str, after: str, label: str) -> str:
        """The tensor as it is on another device after `after`."""
        node = self._add(label, "Identity", device, [text, after])
        node.attr["T"].type = tf.dtypes.as_dtype(tensor.dtype).as_datatype_enum
        return label

    def _add(self, name: str, kind: str, device: str, inputs: list[str]) -> Any:
        node = self._meta.graph_def.node.add()
        node.name, node.op, node.device = name, kind, device
        node.input.extend(inputs)
        return node


def _one_operation_a_nanosecond(name: str) -> VirtualDevice:
    return VirtualDevice(name, "CPU", _GIGA, _GIGA)


def copy_constants(meta: Any, names: Iterable[str]) -> Any:
    """A MetaGraphDef in which each named constant has a copy on every device that reads it, so that none is sent.

    Args:
      meta: the MetaGraphDef, its ops on devices; not changed.
      names: ops of type `Const`.
    """
    out = tf.compat.v1.MetaGraphDef()
    out.CopyFrom(meta)
    constants = set(names)
    originals = {node.name: node for node in out.graph_def.node if node.name in constants}
    for original in originals.values():
        del original.input[:]  # a constant waits for nothing that matters
    copies: dict[tuple[str, str], str] = {}
    for reader in list(out.graph_def.node):
        for i, text in enumerate(reader.input):
            original = originals.get(input_op(text))
            if original is None or not reader.device or reader.device == original.device:
                continue
            key = (original.name, reader.device)
            if key not in copies:
                copies[key] = _copy(out.graph_def, original, reader.device, len(copies))
            reader.input[i] = f"^{copies[key]}" if text.startswith("^") else copies[key]
    return out


def _copy(graph_def: Any, original: Any, device: str, number: int) -> str:
    copy = graph_def.node.add()
    copy.CopyFrom(original)
    copy.name, copy.device = f"{original.name}/copy_{number}", device
    return str(copy.name)
