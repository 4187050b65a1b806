"""Grappler's virtual clusters, from peak rates instead of Grappler's own units.

Grappler's op-level estimator takes an op's operations over a rate plus its bytes over another, each rounded up to a
nanosecond. It makes the rates of a device from its `DeviceProperties` (TensorFlow 2.21):

    CPU   operations per ns = num_cores * frequency / 1000
    GPU   operations per ns = num_cores * frequency / 1000 * cores per multiprocessor * 2, where the cores are 64 for an
          `environment["architecture"]` from "6" on (32, 192, 128 for older ones)
    both  bytes per ns = bandwidth / 1e6

So the frequency is in MHz, `num_cores` counts a GPU's multiprocessors, and the bandwidth is in kB/s. A GPU without an
architecture gets 100 Gop/s and 12 GB/s whatever else is said of it, a device of another type 1 Gop/s and 12 GB/s, and a
rate of 0 divides by zero: none of these is ever made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tensorflow.core.protobuf import device_properties_pb2
from tensorflow.python.grappler import cluster as grappler_cluster

from grappler_bridge.errors import GrapplerInputError, grappler_errors

OPS_PER_CYCLE = {"CPU": 1, "GPU": 128}
"""Operations that one core (CPU) or multiprocessor (GPU of architecture 6 or later) does per cycle, to Grappler."""

_ARCHITECTURE = "7"
_MHZ, _KILOBYTE = 1e6, 1e3
_NAME = re.compile(
    r"(?:/job:(?P<job>[A-Za-z_]\w*))?(?:/replica:(?P<replica>\d+))?(?:/task:(?P<task>\d+))?"
    r"(?:/device:)?(?P<type>[A-Za-z]\w*):(?P<index>\d+)"
)


@dataclass(frozen=True)
class VirtualDevice:
    """A device that need not exist.

    Attributes:
      name: "GPU:0", or in full.
      type: "CPU" or "GPU"; decides only how Grappler computes with its own numbers.
      flops: peak floating-point operations per second; Grappler knows one rate for all dtypes.
      memory_bandwidth: bytes per second.
      memory_bytes: what it holds; Grappler refuses to cost a graph that needs more. 0 holds everything.
    """

    name: str
    type: str
    flops: float
    memory_bandwidth: float
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        where = f"device {self.name!r}"
        full_name(self.name)
        if self.type not in OPS_PER_CYCLE:
            raise GrapplerInputError(
                f"type {self.type!r} of {where}",
                f"one of {', '.join(OPS_PER_CYCLE)}",
                "Grappler makes up rates for other types.",
            )
        least = OPS_PER_CYCLE[self.type] * _MHZ
        if not least <= self.flops < 2**63:
            raise GrapplerInputError(f"flops {self.flops!r} of {where}", f"at least {least:g}, one step of its clock")
        if not _KILOBYTE <= self.memory_bandwidth < 2**63:
            raise GrapplerInputError(f"memory_bandwidth {self.memory_bandwidth!r} of {where}", "at least 1000 bytes/s")
        if not 0 <= self.memory_bytes < 2**63:
            raise GrapplerInputError(f"memory_bytes {self.memory_bytes!r} of {where}", "at least 0")


def full_name(device: str) -> str:
    """A device's name as Grappler writes it: "GPU:0" is "/job:localhost/replica:0/task:0/device:GPU:0".

    Raises:
      GrapplerInputError: not a device name. Grappler quietly takes its default device for one.
    """
    match = _NAME.fullmatch(device)
    if match is None:
        raise GrapplerInputError(f"device name {device!r}", 'one such as "GPU:0" or "/job:worker/task:1/device:CPU:0"')
    part = match.groupdict()
    place = f"/job:{part['job'] or 'localhost'}/replica:{int(part['replica'] or 0)}/task:{int(part['task'] or 0)}"
    return f"{place}/device:{part['type'].upper()}:{int(part['index'])}"


def device_names(devices: Sequence[VirtualDevice]) -> tuple[str, ...]:
    """Full names of a cluster's devices.

    Raises:
      GrapplerInputError: no devices, or one name twice.
    """
    names = tuple(full_name(d.name) for d in devices)
    if not names:
        raise GrapplerInputError("a cluster without devices", "at least one device")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GrapplerInputError(
            f"device {twice[0]!r} twice", "unique device names", "Grappler would keep only the last one."
        )
    return names


def named_device(device: VirtualDevice) -> Any:
    """The device as Grappler's `NamedDevice`, its rates turned into Grappler's units (see this module)."""
    proto = device_properties_pb2.NamedDevice(name=full_name(device.name))
    properties = proto.properties
    properties.type = device.type
    properties.num_cores = 1
    properties.frequency = round(device.flops / OPS_PER_CYCLE[device.type] / _MHZ)
    properties.bandwidth = round(device.memory_bandwidth / _KILOBYTE)
    properties.memory_size = device.memory_bytes
    if device.type == "GPU":
        properties.environment["architecture"] = _ARCHITECTURE
    return proto


@contextmanager
def virtual_cluster(devices: Sequence[VirtualDevice], *, timeline: bool = True) -> Iterator[Any]:
    """A Grappler cluster of devices that need not exist; using it after its end would crash.

    Args:
      devices: at least one.
      timeline: whether `MeasureCosts` also tells when each op runs, for which it simulates the step once more.

    Raises:
      GrapplerInputError: no devices, or one name twice.
    """
    device_names(devices)
    with grappler_errors("make a virtual cluster"):
        cluster = grappler_cluster.Cluster(devices=[named_device(d) for d in devices], disable_timeline=not timeline)
    try:
        yield cluster
    finally:
        cluster.Shutdown()
