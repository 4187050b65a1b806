"""The processor cores a process may use."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path


def own_cores() -> tuple[int, ...]:
    """This process's, as the system numbers them; fewer than the machine has if it is pinned or in a container."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cores_apart(system: Path = Path("/sys/devices/system/cpu")) -> tuple[int, ...]:
    """The same in another order: one thread of every physical core comes before the second of any.

    Args:
      system: where Linux tells which threads share a core; elsewhere each is taken to be a core.
    """
    seen: Counter[str] = Counter()
    turns = []
    for core in own_cores():
        siblings = system / f"cpu{core}" / "topology" / "thread_siblings_list"
        physical = siblings.read_text().strip() if siblings.exists() else str(core)
        turns.append((seen[physical], core))
        seen[physical] += 1
    return tuple(core for _, core in sorted(turns))


def shares(cores: Sequence[int], count: int) -> list[Sequence[int]]:
    """For each of `count` workers its part of the processors; with more workers than those, they share them."""
    return [cores[number::count] or (cores[number % len(cores)],) for number in range(count)]
