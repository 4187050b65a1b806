"""What the operating system says of this machine's processor and memory. Linux; elsewhere stated defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tfplace.engines.cores import own_cores

DEFAULT_CLOCK_HZ = 3.0e9
DEFAULT_MEMORY_BYTES = 8 * 2**30
BANDWIDTH_PER_CORE = 10e9
MAX_BANDWIDTH = 80e9


@dataclass(frozen=True)
class Machine:
    """The host.

    Attributes:
      model: processor name.
      cores: physical cores this process may use.
      clock_hz: their clock, to a tenth of a gigahertz.
      flops_per_cycle: float32 operations per core and cycle.
      memory_bytes: memory this process may use.
    """

    model: str
    cores: int
    clock_hz: float
    flops_per_cycle: int
    memory_bytes: int

    @property
    def flops(self) -> float:
        """Peak float32 operations per second of all cores."""
        return self.cores * self.clock_hz * self.flops_per_cycle

    @property
    def memory_bandwidth(self) -> float:
        """Bytes per second, a guess: 10 GB/s a core up to 80 GB/s."""
        return min(self.cores * BANDWIDTH_PER_CORE, MAX_BANDWIDTH)

    def describe(self) -> str:
        """How the rates came about, in words."""
        return (
            f"{self.cores} cores x {self.clock_hz / 1e9:.1f} GHz x {self.flops_per_cycle} float32 operations per cycle "
            f"of {self.model}; memory bandwidth guessed at {self.memory_bandwidth / 1e9:.0f} GB/s"
        )


def read_machine(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Machine:
    """The machine this process runs on.

    Args:
      proc: where `cpuinfo` and `meminfo` are.
      cgroup: where the limits of groups of processes are, those of version 1 below "memory".
    """
    info = _fields(proc / "cpuinfo")
    threads = len(own_cores())
    return Machine(
        model=info.get("model name", "an unknown processor"),
        cores=max(1, threads // _threads_per_core(info)),
        clock_hz=_clock_hz(info),
        flops_per_cycle=_flops_per_cycle(set(info.get("flags", "").split())),
        memory_bytes=min([_memory_bytes(proc / "meminfo"), *_limits(proc / "self" / "cgroup", cgroup)]),
    )


def _fields(path: Path) -> dict[str, str]:
    """The first value of every `name : value` line."""
    out: dict[str, str] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        out.setdefault(name.strip(), value.strip())
    return out


def _threads_per_core(info: dict[str, str]) -> int:
    return max(1, int(info.get("siblings", 1)) // max(1, int(info.get("cpu cores", 1))))


def _clock_hz(info: dict[str, str]) -> float:
    """The clock in the model's name if there is one: the current clock changes from run to run."""
    named = re.search(r"@ *([\d.]+) *GHz", info.get("model name", ""))
    ghz = float(named[1]) if named else float(info.get("cpu MHz", DEFAULT_CLOCK_HZ / 1e6)) / 1e3
    return round(ghz, 1) * 1e9


def _flops_per_cycle(flags: set[str]) -> int:
    """Two vector units per core; a fused multiply-add counts as two operations."""
    lanes = 16 if "avx512f" in flags else 8 if "avx" in flags else 4
    return lanes * 2 * (2 if "fma" in flags else 1)


def _memory_bytes(meminfo: Path) -> int:
    total = _fields(meminfo).get("MemTotal", "")
    return int(total.split()[0]) * 1024 if total else DEFAULT_MEMORY_BYTES


def _limits(groups: Path, cgroup: Path) -> list[int]:
    """Bytes that a container, or a batch system, allows: of this process's group and of those it is in."""
    own = {cgroup / "memory.max", cgroup / "memory" / "memory.limit_in_bytes"}
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, path = line.split(":", 2)
        inside = PurePosixPath(path.lstrip("/"))
        for part in (inside, *inside.parents):
            if not controllers:
                own.add(cgroup / part / "memory.max")
            elif "memory" in controllers.split(","):
                own.add(cgroup / "memory" / part / "memory.limit_in_bytes")
    texts = [path.read_text().strip() for path in own if path.exists()]
    return [int(text) for text in texts if text.isdigit()]
