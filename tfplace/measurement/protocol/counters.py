"""What the operating system counts of who uses the processor. Linux; elsewhere there is nothing to count."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01

_ACCOUNTING = ("cpuacct/cpuacct.usage_percpu", "cpu,cpuacct/cpuacct.usage_percpu")
_IDLE, _WAITING, _STOLEN = 3, 4, 7
_GUEST = 8
_LAST_CORE = 36  # of what follows the name in /proc/PID/task/TID/stat
_SCHEDULER_CLOCK = 2
_BUSY_S = 1e-4


class Counter(Protocol):
    """Counts processor seconds others used on some cores.

    Attributes:
      name: what it goes by and how finely, in words.
      slack_s: what it may be wrong by between two moments, in seconds.
    """

    name: str
    slack_s: float

    def foreign_s(self, own_s: float) -> float:
        """Seconds so far; only differences mean something.

        Args:
          own_s: processor seconds our own processes have used so far.
        """


class Accounting:
    """The accounting cgroup: all processes below it, by core, to the nanosecond.

    Args:
      path: of its `cpuacct.usage_percpu`.
      cores: the cores to watch.
    """

    name = "cpuacct to the nanosecond"

    def __init__(self, path: Path, cores: Sequence[int]) -> None:
        self.slack_s = 1e-4 * len(cores)  # our clocks and the accounting are not read at the same instant
        self._path = path
        self._cores = cores

    def foreign_s(self, own_s: float) -> float:
        """See `Counter`."""
        per_core = self._path.read_text().split()
        return sum(int(per_core[core]) for core in self._cores if core < len(per_core)) * 1e-9 - own_s


class Neighbours:
    """The clocks of all other processes that can be seen, of those last seen on our cores.

    The clock of a process that runs is up to date to a few milliseconds, of one that waits exactly. Processes that
    begin and end between two looks are not seen.

    Args:
      ours: processes that are not foreign.
      cores: the cores to watch.
      proc: where processes are listed.
    """

    name = "other processes' clocks"

    def __init__(self, ours: Sequence[int], cores: Sequence[int], proc: Path) -> None:
        self.slack_s = 1e-4 * len(cores)
        self._ours = set(ours)
        self._cores = set(cores)
        self._proc = proc
        self._last = self._clocks()
        self._total_s = 0.0

    def foreign_s(self, own_s: float) -> float:
        """See `Counter`."""
        before, self._last = self._last, self._clocks()
        for pid, seconds in self._last.items():
            used_s = seconds - before.get(pid, 0.0)
            if used_s > 0 and (used_s < _BUSY_S or self._was_here(pid)):
                self._total_s += used_s
        return self._total_s

    def _clocks(self) -> dict[int, float]:
        pids = [int(path.name) for path in self._proc.iterdir() if path.name.isdigit()]
        return {pid: process_seconds(pid) for pid in pids if pid not in self._ours}

    def _was_here(self, pid: int) -> bool:
        """Whether a thread was last seen on one of our cores."""
        for path in (self._proc / str(pid) / "task").glob("*/stat"):
            with contextlib.suppress(OSError, IndexError):  # the thread has ended
                if int(path.read_text().rpartition(")")[2].split()[_LAST_CORE]) in self._cores:
                    return True
        return False


class Ticks:
    """`/proc/stat`: the whole machine, containers of others too, by core, in steps of 10 ms.

    Args:
      path: the file.
      cores: the cores to watch.
    """

    name = f"/proc/stat to {TICK_S * 1e3:.0f} ms"

    def __init__(self, path: Path, cores: Sequence[int]) -> None:
        self.slack_s = 2 * TICK_S * len(cores)
        self._path = path
        self._wanted = {f"cpu{core}" for core in cores}

    def foreign_s(self, own_s: float) -> float:
        """See `Counter`."""
        idle = (_IDLE, _WAITING, _STOLEN)
        used = sum(n for row in self._rows() for i, n in enumerate(row[:_GUEST]) if i not in idle)
        return TICK_S * used - own_s

    def stolen_s(self) -> float:
        """Seconds for which the host has run something else in our place."""
        return TICK_S * sum(row[_STOLEN] for row in self._rows() if len(row) > _STOLEN)

    def _rows(self) -> list[list[int]]:
        """Of each watched core, ticks as user, nice, system, idle, waiting, irq, softirq, stolen, ...."""
        rows = []
        with self._path.open() as lines:
            for line in lines:
                name, *fields = line.split()
                if not name.startswith("cpu"):
                    break
                if name in self._wanted:
                    rows.append([int(n) for n in fields])
        return rows


def find_counters(
    ours: Sequence[int], cores: Sequence[int], proc: Path, cgroup: Path
) -> tuple[list[Counter], Ticks | None]:
    """The counters this system has: the finest there is, and the one that sees most.

    Returns:
      All of them, and that which tells of stolen time.
    """
    found: list[Counter] = []
    accounting = next((cgroup / name for name in _ACCOUNTING if os.access(cgroup / name, os.R_OK)), None)
    if accounting is not None:
        found.append(Accounting(accounting, cores))
    elif proc.is_dir() and hasattr(time, "clock_gettime"):
        found.append(Neighbours(ours, cores, proc))
    ticks = Ticks(proc / "stat", cores) if os.access(proc / "stat", os.R_OK) else None
    return ([*found, ticks] if ticks is not None else found), ticks


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
