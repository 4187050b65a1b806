"""Did something else use the processor meanwhile? Asked between steps, of the operating system.

What our own processes used is known to the nanosecond from their processor clocks. What all processes used comes from

- the accounting cgroup's `cpuacct.usage_percpu`, where it is mounted: nanoseconds, per core, of the processes below it
  (of all, outside of containers);
- `/proc/stat`: per core and of the whole machine, but in steps of 10 ms, so only what exceeds them counts.

The difference is others' doing. What this cannot see: other virtual machines, beyond the stolen time that the host
admits to; other containers, where the accounting is ours alone and they use less than the 10 ms steps show; a neighbour
who slows memory, caches or the clock rather than taking processor time. Work that the kernel does for us on threads of
its own counts as others'.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSTEM_TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01
_STAT_SLACK_S = 2 * _SYSTEM_TICK_S
_ACCOUNTING = ("cpuacct/cpuacct.usage_percpu", "cpu,cpuacct/cpuacct.usage_percpu")
_IDLE, _WAITING, _STEAL = 3, 4, 7
_GUEST = 8
_SCHEDULER_CLOCK = 2


@dataclass(frozen=True)
class Interference:
    """What happened on the watched cores in an interval.

    Attributes:
      wall_s: its length in seconds.
      own_s: processor seconds our processes used.
      foreign_s: processor seconds others used, at least; 0 where nothing tells.
      stolen_s: processor seconds the host gave to other machines.
    """

    wall_s: float
    own_s: float
    foreign_s: float
    stolen_s: float

    @property
    def share(self) -> float:
        """Processor time lost to others per second; 1 is one whole core."""
        return (self.foreign_s + self.stolen_s) / self.wall_s if self.wall_s > 0 else 0.0


@dataclass(frozen=True)
class _Reading:
    at_s: float
    own_s: float
    stolen_s: float
    used_s: tuple[float, ...]


class ProcessorWatch:
    """Tells who used the processor between two moments. Costs about 0.1 ms a look.

    Args:
      pids: our processes besides this one.
      cores: the cores to watch; all that this process may use by default.
      proc: where `stat` is.
      cgroup: where cgroups are mounted.
    """

    def __init__(
        self,
        pids: Sequence[int] = (),
        cores: Sequence[int] | None = None,
        proc: Path = Path("/proc"),
        cgroup: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self.cores = tuple(own_cores() if cores is None else cores)
        self._pids = (os.getpid(), *pids)
        self._stat = proc / "stat"
        self._accounting = next((cgroup / name for name in _ACCOUNTING if (cgroup / name).is_file()), None)
        self._counters: list[tuple[str, Callable[[], float], float]] = []
        if self._accounting is not None:
            self._counters.append(("cpuacct to the nanosecond", self._accounted_s, 0.0))
        if self._stat.is_file():
            self._counters.append((f"/proc/stat to {_SYSTEM_TICK_S * 1e3:.0f} ms", self._busy_s, _STAT_SLACK_S))
        self._last = self.read()

    @property
    def source(self) -> str:
        """What it goes by, in words."""
        return " and ".join(name for name, *_ in self._counters) or "nothing: this system does not tell"

    def read(self) -> _Reading:
        """The counters now."""
        # Our own clocks first: asking for them brings the accounting of what runs now up to date.
        own = sum(process_seconds(pid) for pid in self._pids)
        used = tuple(count() for _, count, _ in self._counters)
        return _Reading(time.perf_counter(), own, self._stolen_s() if self._stat.is_file() else 0.0, used)

    def since(self, before: _Reading, after: _Reading | None = None) -> Interference:
        """What happened between two readings, the second of which is taken now by default."""
        after = after or self.read()
        own = after.own_s - before.own_s
        foreign = 0.0
        for (_, _, slack), first, last in zip(self._counters, before.used_s, after.used_s, strict=True):
            foreign = max(foreign, last - first - own - slack * len(self.cores))
        return Interference(after.at_s - before.at_s, own, foreign, max(0.0, after.stolen_s - before.stolen_s))

    def __call__(self) -> float:
        """`Interference.share` since the last call (or since it was made)."""
        before, self._last = self._last, self.read()
        return self.since(before, self._last).share

    def _accounted_s(self) -> float:
        assert self._accounting is not None
        per_core = self._accounting.read_text().split()
        return sum(int(per_core[core]) for core in self.cores if core < len(per_core)) * 1e-9

    def _busy_s(self) -> float:
        idle = (_IDLE, _WAITING, _STEAL)
        return _SYSTEM_TICK_S * sum(
            sum(n for i, n in enumerate(row[:_GUEST]) if i not in idle) for row in self._core_rows()
        )

    def _stolen_s(self) -> float:
        return _SYSTEM_TICK_S * sum(row[_STEAL] for row in self._core_rows() if len(row) > _STEAL)

    def _core_rows(self) -> list[list[int]]:
        """Of each watched core, ticks as user, nice, system, idle, waiting, irq, softirq, stolen, ...."""
        wanted = {f"cpu{core}" for core in self.cores}
        rows = []
        with self._stat.open() as lines:
            for line in lines:
                name, *fields = line.split()
                if not name.startswith("cpu"):
                    break
                if name in wanted:
                    rows.append([int(n) for n in fields])
        return rows


def waited_s(pids: Sequence[int], proc: Path = Path("/proc")) -> float:
    """Seconds for which threads of the processes could have run and had no core, since they began.

    A thread waits for others of its own process, too, so this alone is no proof of a neighbour. 0 where the system does
    not tell.
    """
    total = 0
    for pid in pids:
        for path in (proc / str(pid) / "task").glob("*/schedstat"):
            try:
                total += int(path.read_text().split()[1])
            except (OSError, IndexError):  # the thread has ended
                continue
    return total * 1e-9


def own_cores() -> tuple[int, ...]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def process_seconds(pid: int) -> float:
    """Processor seconds of a process and its ended and running threads; 0 if it is gone.

    Python lacks `clock_getcpuclockid(3)`, but the number is fixed: the inverted pid above three bits of kind.
    """
    if pid == os.getpid():
        return time.process_time()
    try:
        return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)
    except (OSError, AttributeError):
        return 0.0
