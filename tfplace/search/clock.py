"""The clock of a search, which stands still while kernels are compiled."""

from __future__ import annotations

import time

from numba.core import event

from tfplace.core.notices import notice

LONG_S = 2.0
"""Seconds of compiling after which it is said that this goes on."""


class _Compiling(event.Listener):  # type: ignore[misc]
    """Adds up what compiling takes, and says so if it is long; functions compiled for others are a part of these.

    Attributes:
      spent: seconds, and those of the processor, of which there are fewer where other processes want it too.
    """

    def __init__(self) -> None:
        self.spent = (0.0, 0.0)
        self._begun = (0.0, 0.0)
        self._depth = 0
        self._said = False

    def on_start(self, event: event.Event) -> None:
        """Something is compiled."""
        if self._depth == 0:
            self._begun = _now()
        else:
            self._say(self.spent[0] + time.perf_counter() - self._begun[0])
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """It has been."""
        self._depth -= 1
        if self._depth == 0:
            wall, cpu = (now - begun for now, begun in zip(_now(), self._begun, strict=True))
            self.spent = (self.spent[0] + wall, self.spent[1] + cpu)
            self._say(self.spent[0])

    def _say(self, wall: float) -> None:
        """Once in a process, as soon as so many seconds are long."""
        if wall > LONG_S and not self._said:
            self._said = True
            notice("compiling kernels, which are then kept for later runs; it does not count as search time")


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


_COMPILING = _Compiling()
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


def worked_s() -> float:
    """Processor seconds of this process until now, less those in which it compiled."""
    return time.process_time() - _COMPILING.spent[1]


def _at_work() -> float:
    return time.perf_counter() - _COMPILING.spent[0]
