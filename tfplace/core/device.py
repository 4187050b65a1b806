"""Device and link: what a topology is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfplace.errors import TopologyError

LINK_OVERHEADS = (
    "send_overhead_s",
    "send_overhead_s_per_byte",
    "receive_overhead_s",
    "receive_overhead_s_per_byte",
)

_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)}
_FLOATS = {"float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"}
_DTYPES = {*_INTEGERS, *_FLOATS, "bool"}


_CPU = re.compile(r"(.*?)(?:/device:)?CPU:\d+")


def processor_of(device: str) -> str:
    """What a TensorFlow device computes on: itself, but all logical CPUs of a process have the cores of one processor.

    >>> processor_of("CPU:0"), processor_of("CPU:1"), processor_of("GPU:1")
    ('/CPU', '/CPU', 'GPU:1')
    >>> processor_of("/job:worker/task:1/device:CPU:0")
    '/job:worker/task:1/CPU'
    """
    match = _CPU.fullmatch(device)
    return device if match is None else f"{match[1]}/CPU"


@dataclass(frozen=True)
class Device:
    """One device.

    Attributes:
      name: as in placements, such as "GPU:0".
      type: TensorFlow device type, such as "GPU".
      memory_bytes: memory it has.
      flops: dtype name -> peak floating-point operations per second; "float32" is required and stands in for others.
      memory_bandwidth: bytes per second between its memory and its compute units.
      op_overhead_s: seconds each op costs besides its work (launch, executor).
      duplex: "full" if it can send and receive at once, else "half".
      model: the product's name, for people and for caches of profiled costs.
      workspace_bytes: an allowance for what kernels and the runtime hold beside tensors (a context, convolution
        scratch); never available to a placement.
    """

    name: str
    type: str
    memory_bytes: int
    flops: Mapping[str, float]
    memory_bandwidth: float
    op_overhead_s: float
    duplex: str = "full"
    model: str = ""
    workspace_bytes: int = 0

    def __post_init__(self) -> None:
        where = f"device {self.name!r}"
        if not isinstance(self.name, str) or not self.name:
            raise TopologyError(where, 'a name such as "GPU:0"')
        if unknown := sorted(self.flops.keys() - _DTYPES):
            raise TopologyError(f"flops of {unknown[0]!r} in {where}", f"dtypes {', '.join(sorted(_DTYPES))}")
        for what, value in (("memory", self.memory_bytes), ("memory_bandwidth", self.memory_bandwidth)):
            if not 0 < value < math.inf:
                raise TopologyError(f"{what} {value!r} in {where}", f"a finite {what} above 0")
        if not 0 <= self.workspace_bytes < self.memory_bytes:
            raise TopologyError(
                f"workspace {self.workspace_bytes!r} in {where}", "workspace of at least 0, below memory"
            )
        if not 0 <= self.op_overhead_s < math.inf:
            raise TopologyError(f"op_overhead {self.op_overhead_s!r} in {where}", "a finite op_overhead of at least 0")
        if "float32" not in self.flops or not all(0 < f < math.inf for f in self.flops.values()):
            raise TopologyError(
                f"flops {dict(self.flops)!r} in {where}", 'finite rates above 0 with an entry "float32"'
            )
        if self.duplex not in ("full", "half"):
            raise TopologyError(f"duplex {self.duplex!r} in {where}", '"full" or "half"')


@dataclass(frozen=True)
class Link:
    """A directed way from one device to another.

    Attributes:
      src: sending device.
      dst: receiving device.
      bandwidth: bytes per second.
      latency_s: seconds added to every transfer.
      port: which of the devices' ports it uses; transfers on different ports do not wait for one another.
      shared: names of channels it shares with other links (a PCIe switch, a QPI hop); one transfer at a time on each.
      send_overhead_s: seconds for which each transfer keeps the sending device from computing (serializing, a copy, a
        system call): the overhead o of LogGP (Alexandrov et al. 1995). 0 for a device with copy engines.
      send_overhead_s_per_byte: the part of it that grows with the size.
      receive_overhead_s: the same at the receiving device.
      receive_overhead_s_per_byte: the same at the receiving device.
    """

    src: str
    dst: str
    bandwidth: float
    latency_s: float
    port: str = "main"
    shared: tuple[str, ...] = ()
    send_overhead_s: float = 0.0
    send_overhead_s_per_byte: float = 0.0
    receive_overhead_s: float = 0.0
    receive_overhead_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        where = f"link {self.src} -> {self.dst}"
        if not 0 < self.bandwidth < math.inf:
            raise TopologyError(f"bandwidth {self.bandwidth!r} in {where}", "a finite bandwidth above 0")
        if not 0 <= self.latency_s < math.inf:
            raise TopologyError(f"latency {self.latency_s!r} in {where}", "a finite latency of at least 0")
        for what in LINK_OVERHEADS:
            if not 0 <= getattr(self, what) < math.inf:
                raise TopologyError(f"{what} {getattr(self, what)!r} in {where}", f"a finite {what} of at least 0")
