"""Did something else use the processor meanwhile? Asked between steps, of the operating system.

What our own processes used is known to the nanosecond from their processor clocks. What others used comes from

- the accounting cgroup's `cpuacct.usage_percpu`, where it is mounted: nanoseconds, per core, of the processes below it
  (of all, outside of containers);
- else the processor clocks of the other processes that can be seen, as finely, but for those that come and go;
- and `/proc/stat`: per core and of the whole machine, but in steps of 10 ms, so only what exceeds them counts.

What this cannot see: other virtual machines, beyond the stolen time that the host admits to; other containers, unless
they use more than the 10 ms steps hide; a neighbor who slows memory, caches or the clock rather than taking processor
time. Work that the kernel does for us on threads of its own counts as others'.

The time for which our threads could have run and had no core (schedstat) tells nothing: a worker's threads wait for one
another, on a quiet machine two to ten times as long as the step takes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfplace.engines.cores import own_cores
from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.protocol.counters import find_counters, process_seconds


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
class Reading:
    """Counters at a moment: of time, our processor seconds, stolen ones, and others' by each way to tell."""

    at_s: float
    own_s: float
    stolen_s: float
    foreign_s: tuple[float, ...]


class ProcessorWatch:
    """Tells who used the processor between two moments. A look costs about 0.1 ms.

    Args:
      pids: our processes besides this one.
      cores: the cores to watch; all that this process may use by default.
      proc: where `stat` and the processes are.
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
        self._counters, self._ticks = find_counters(self._pids, self.cores, proc, cgroup)
        self._last = self.read()

    @property
    def source(self) -> str:
        """What it goes by, in words."""
        return " and ".join(counter.name for counter in self._counters) or "nothing: this system does not tell"

    def read(self) -> Reading:
        """The counters now."""
        # Our own clocks first: asking for them brings the accounting of what runs now up to date.
        own_s = sum(process_seconds(pid) for pid in self._pids)
        foreign_s = tuple(counter.foreign_s(own_s) for counter in self._counters)
        return Reading(time.perf_counter(), own_s, self._ticks.stolen_s() if self._ticks else 0.0, foreign_s)

    def since(self, before: Reading, after: Reading | None = None) -> Interference:
        """What happened between two readings, the second of which is taken now by default."""
        after = after or self.read()
        foreign_s = 0.0
        for counter, first, last in zip(self._counters, before.foreign_s, after.foreign_s, strict=True):
            foreign_s = max(foreign_s, last - first - counter.slack_s)
        stolen_s = max(0.0, after.stolen_s - before.stolen_s)
        return Interference(after.at_s - before.at_s, after.own_s - before.own_s, foreign_s, stolen_s)

    def __call__(self) -> float:
        """`Interference.share` since the last call (or since it was made)."""
        before, self._last = self._last, self.read()
        return self.since(before, self._last).share


def watch_backend(backend: Backend) -> ProcessorWatch | None:
    """A watch of the cores that a backend's steps use; None if those are on other machines, which nobody here sees."""
    return ProcessorWatch(backend.pids, backend.cores) if backend.cores else None
