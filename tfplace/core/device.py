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

_MOST_S = 1e9
_LEAST_RATE, _MOST_RATE = 1e-9, 1e30
"""What sums of a whole step's times stay finite with."""

_PATTERN = "*?["
"""Characters by which rules and links name several devices."""

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


_TASK = re.compile(r"/job:[^/]+(?:/replica:\d+)?/task:\d+")


def task_of(device: str) -> str:
    """The job and task in the name of a TensorFlow device; empty for a device of the process itself.

    >>> task_of("/job:worker/task:1/device:GPU:0"), task_of("GPU:0")
    ('/job:worker/task:1', '')
    """
    match = _TASK.match(device)
    return "" if match is None else match[0]


def check_rate(what: str, rate: float, where: str) -> None:
    """Refuses a rate, in units a second, with which times are not finite."""
    if not _LEAST_RATE <= rate <= _MOST_RATE:
        raise TopologyError(
            f"{what} {rate!r} in {where}", f"a finite {what} above 0, {_LEAST_RATE:g} to {_MOST_RATE:g}"
        )


def check_seconds(what: str, seconds: float, where: str) -> None:
    """Refuses seconds with whose sums times are not finite."""
    if not 0 <= seconds <= _MOST_S:
        raise TopologyError(f"{what} {seconds!r} in {where}", f"a finite {what} of at least 0, at most {_MOST_S:g} s")


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
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise TopologyError(where, 'a name such as "GPU:0"')
        if any(character in self.name for character in _PATTERN):
            raise TopologyError(where, f"a name without {' '.join(_PATTERN)}, which make it a pattern of names")
        if unknown := sorted(self.flops.keys() - _DTYPES):
            raise TopologyError(f"flops of {unknown[0]!r} in {where}", f"dtypes {', '.join(sorted(_DTYPES))}")
        if not 0 < self.memory_bytes < math.inf:
            raise TopologyError(f"memory {self.memory_bytes!r} in {where}", "a finite memory above 0")
        check_rate("memory_bandwidth", self.memory_bandwidth, where)
        if not 0 <= self.workspace_bytes < self.memory_bytes:
            raise TopologyError(
                f"workspace {self.workspace_bytes!r} in {where}", "workspace of at least 0, below memory"
            )
        check_seconds("op_overhead", self.op_overhead_s, where)
        if "float32" not in self.flops:
            raise TopologyError(
                f"flops {dict(self.flops)!r} in {where}", 'finite rates above 0 with an entry "float32"'
            )
        for dtype, rate in self.flops.items():
            check_rate(f"rate of {dtype!r}", rate, where)
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
        check_rate("bandwidth", self.bandwidth, where)
        check_seconds("latency", self.latency_s, where)
        for what in LINK_OVERHEADS:
            check_seconds(what, getattr(self, what), where)
