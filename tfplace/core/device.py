"""Device and link: the parts of a topology."""

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
"""Limits within which the sums of a step's times stay finite."""

_PATTERN = "*?["
"""Characters that make the device name in a rule or link a pattern for several devices."""

_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)}
_FLOATS = {"float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"}
_DTYPES = {*_INTEGERS, *_FLOATS, "bool"}


_CPU = re.compile(r"(.*?)(?:/device:)?CPU:\d+")


def processor_of(device: str) -> str:
    """The processor behind a TensorFlow device: itself, except that all logical CPUs of a process share one processor.

    >>> processor_of("CPU:0"), processor_of("CPU:1"), processor_of("GPU:1")
    ('/CPU', '/CPU', 'GPU:1')
    >>> processor_of("/job:worker/task:1/device:CPU:0")
    '/job:worker/task:1/CPU'
    """
    match = _CPU.fullmatch(device)
    return device if match is None else f"{match[1]}/CPU"


_TASK = re.compile(r"/job:[^/]+(?:/replica:\d+)?/task:\d+")


def task_of(device: str) -> str:
    """The job and task in the name of a TensorFlow device; empty for a local device.

    >>> task_of("/job:worker/task:1/device:GPU:0"), task_of("GPU:0")
    ('/job:worker/task:1', '')
    """
    match = _TASK.match(device)
    return "" if match is None else match[0]


def check_rate(what: str, rate: float, where: str) -> None:
    """Refuses a rate, in units per second, that would make times infinite."""
    if not _LEAST_RATE <= rate <= _MOST_RATE:
        raise TopologyError(
            f"{what} {rate!r} in {where}", f"a finite {what} above 0, {_LEAST_RATE:g} to {_MOST_RATE:g}"
        )


def check_seconds(what: str, seconds: float, where: str) -> None:
    """Refuses seconds whose sums could be infinite."""
    if not 0 <= seconds <= _MOST_S:
        raise TopologyError(f"{what} {seconds!r} in {where}", f"a finite {what} of at least 0, at most {_MOST_S:g} s")


@dataclass(frozen=True)
class Device:
    """A device of a topology.

    Attributes:
      name: name in placements, such as "GPU:0".
      type: TensorFlow device type, such as "GPU".
      memory_bytes: size of its memory in bytes.
      flops: dtype name -> peak operations per second. "float32" is required, and used for dtypes that are missing.
      memory_bandwidth: bytes per second between its memory and its compute units.
      op_overhead_s: seconds that each op takes besides its work, for kernel launch and executor.
      duplex: "full" if it can send and receive at the same time, else "half".
      model: name of the product, for reports and as the key of profiled costs.
      workspace_bytes: bytes reserved for what kernels and the runtime hold besides tensors, such as a context or the
        scratch space of convolutions. Placements cannot use them.
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
    """A directed link from one device to another.

    Attributes:
      src: sending device.
      dst: receiving device.
      bandwidth: bytes per second.
      latency_s: seconds that every transfer takes besides its bytes.
      port: the port that it uses on both devices. Transfers through different ports do not wait for one another.
      shared: names of channels shared with other links, such as a PCIe switch or a QPI hop. Each carries one transfer
        at a time.
      send_overhead_s: seconds for which each transfer keeps the sending device from computing (serialization, a copy, a
        system call): the overhead o of LogGP (Alexandrov et al. 1995). 0 for a device with copy engines.
      send_overhead_s_per_byte: the part of the send overhead that grows with the size, in seconds per byte.
      receive_overhead_s: the same as `send_overhead_s` for the receiving device.
      receive_overhead_s_per_byte: the same as `send_overhead_s_per_byte` for the receiving device.
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
