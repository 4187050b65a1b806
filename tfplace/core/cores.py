"""The processor cores a process may use."""

from __future__ import annotations

import os


def own_cores() -> tuple[int, ...]:
    """This process's, as the system numbers them; fewer than the machine has if it is pinned or in a container."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
