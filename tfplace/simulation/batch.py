"""Which compiled kernel serves some options, and many placements on several threads."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from tfplace.core.by_address import ByAddress
from tfplace.core.problem import Problem
from tfplace.simulation import event
from tfplace.simulation.event import Batch
from tfplace.simulation.options import Options
from tfplace.simulation.paths import after_s, any_seconds
from tfplace.simulation.program import Program, Scratch, compile_problem, make_scratch

_CHUNKS = 4
"""Parts per thread of a batch: enough that no thread waits long for the others."""


class Kernel:
    """The simulation kernel for one problem and some options.

    Args:
      problem: what is placed.
      options: what is taken into account.
    """

    def __init__(self, problem: Problem, options: Options) -> None:
        self.problem = problem
        self.options = options
        self.program = compile_problem(problem, options)
        self.flags = event.make_flags(self.program, options)
        self._plain = event.by_address(self.flags)
        self._limited = event.by_address(self.flags._replace(limited=True))
        self._recording: dict[int, ByAddress[event.Flags]] = {}
        self.at = ByAddress(self.program)
        self._none = Batch(np.zeros((0, 0), np.int32), np.zeros(0, np.int64), np.zeros(0))

    @cached_property
    def _with_rest(self) -> ByAddress[Program]:
        """The program with what a limit needs to know, which takes a while to find out."""
        seconds = any_seconds(self.problem)
        return ByAddress(self.program._replace(rest=seconds + after_s(self.problem, seconds, self.options)))

    def scratch(self) -> ByAddress[Scratch]:
        """Arrays for one run at a time."""
        return ByAddress(make_scratch(self.program, event.slots_of(self.flags)))

    def run(self, scratch: ByAddress[Scratch]) -> float:
        """Simulates a step with the devices in the scratch, which then tells all; returns its seconds."""
        orders = self.flags.phase_orders
        if orders & (orders - 1):  # several: first which is best
            event.simulate(self.at, scratch, self._plain, *self._none, np.inf, 0, 0)
            orders = 1 << int(scratch.fields.chosen[1])
        if orders not in self._recording:
            self._recording[orders] = event.by_address(self.flags._replace(phase_orders=orders, record=True))
        return float(event.simulate(self.at, scratch, self._recording[orders], *self._none, np.inf, 0, 0))

    def keys(self, scratch: ByAddress[Scratch], batch: Batch, limit_s: float, first: int, end: int) -> None:
        """Writes the keys of the placements `first` to `end` of the batch."""
        limited = limit_s < np.inf
        program, flags = (self._with_rest, self._limited) if limited else (self.at, self._plain)
        if first < end:
            event.simulate(program, scratch, flags, *batch, limit_s, first, end)


class Threads:
    """Runs a kernel on several threads, each with its own scratch.

    Args:
      kernel: what runs.
      count: threads.
    """

    def __init__(self, kernel: Kernel, count: int) -> None:
        self._kernel = kernel
        self._count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="tfplace-simulate")
        self._free: queue.SimpleQueue[ByAddress[Scratch]] = queue.SimpleQueue()
        for _ in range(count):
            self._free.put(kernel.scratch())

    def keys(self, batch: Batch, limit_s: float) -> None:
        """`Kernel.keys` of the whole batch."""
        size = len(batch.units)
        bounds = np.linspace(0, size, min(size, self._count * _CHUNKS) + 1).astype(int).tolist()

        def part(first: int, end: int) -> None:
            scratch = self._free.get()
            try:
                self._kernel.keys(scratch, batch, limit_s, first, end)
            finally:
                self._free.put(scratch)

        for _ in self._pool.map(part, bounds[:-1], bounds[1:]):
            pass

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()
