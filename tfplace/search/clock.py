"""The clock of a search, which stands still while kernels are compiled."""

from __future__ import annotations

import time

from numba.core import event

_COMPILING = event.TimingListener()
event.register("numba:compile", _COMPILING)


class Clock:
    """Seconds since it was made, less those in which numba compiled a function.

    A kernel is compiled on its first call on a machine and kept by numba; from then on it is loaded. So a search by the
    clock does as much on the first day as on any other, and takes longer only then.
    """

    def __init__(self) -> None:
        self._start = _at_work()

    @property
    def seconds(self) -> float:
        """As the class says."""
        return _at_work() - self._start


def compiling_s() -> float:
    """Seconds that this process has compiled until now."""
    return float(_COMPILING.duration) if _COMPILING.done else 0.0


def _at_work() -> float:
    return time.perf_counter() - compiling_s()
