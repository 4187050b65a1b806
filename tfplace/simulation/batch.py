"""Which compiled kernel serves some options, and many placements on several threads."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.by_address import ByAddress
from tfplace.core.placement import CRITICAL_PATH
from tfplace.core.problem import Problem
from tfplace.core.stepcost import FAILED_BYTES, Key
from tfplace.simulation import event
from tfplace.simulation.event import Batch
from tfplace.simulation.options import Options
from tfplace.simulation.paths import after_s, any_seconds
from tfplace.simulation.program import Program, Scratch, compile_problem, make_scratch, ranks
from tfplace.simulation.stretches import STRETCHES, Stretches

_CHUNKS = 4
"""Parts per thread of a batch: enough that no thread waits long for the others."""
_GIVEN = 1 << event.GIVEN


class Kernel:
    """The simulation kernel for one problem and some options.

    Args:
      problem: what is placed.
      options: what is taken into account.
      phases: [V] the phase of each op on its device in every placement, -1 for any time, instead of those of
        `options.phase_orders`; None for those.
    """

    def __init__(self, problem: Problem, options: Options, phases: IntArray | None = None) -> None:
        self.problem = problem
        self.options = options
        self.program = compile_problem(problem, options)
        self.flags = event.make_flags(self.program, options)
        self._phases = None if phases is None else _numbered(phases)
        if phases is not None:
            self.flags = self.flags._replace(phase_orders=_GIVEN)
        self._by_rule = self.flags.phase_orders & ~_GIVEN
        self._plain = event.by_address(self.flags._replace(phase_orders=self._by_rule or _GIVEN))
        self._limited = event.by_address(self._plain.fields._replace(limited=True))
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
        slots = event.slots_of(self.flags)
        if self._phases is None:
            return ByAddress(make_scratch(self.program, slots, STRETCHES if self._finds_path else 0))
        scratch = make_scratch(self.program, slots, int(self._phases.max(initial=-1)) + 1)
        scratch.phase[:] = self._phases
        return ByAddress(scratch)

    @property
    def _finds_path(self) -> bool:
        """Whether the phases of the critical path, which a placement has to be simulated to find, are tried."""
        return self._phases is None and bool(self.flags.phase_orders & _GIVEN)

    @cached_property
    def _stretches(self) -> Stretches:
        return Stretches(self.problem.graph)

    @cached_property
    def _ranked(self) -> tuple[ByAddress[Program], ByAddress[event.Flags]]:
        """The program and the flags by which devices follow the critical path."""
        program = self.program._replace(rank=ranks(self.problem, CRITICAL_PATH))
        return ByAddress(program), event.by_address(
            self.flags._replace(order=event.RANKED, phase_orders=1 << event.FREE, record=True)
        )

    def run(self, scratch: ByAddress[Scratch]) -> float:
        """Simulates a step with the devices in the scratch, which then tells all; returns its seconds."""
        orders = self._by_rule or _GIVEN
        if orders & (orders - 1):  # several: first which is best
            event.simulate(self.at, scratch, self._plain, *self._none, np.inf, 0, 0)
            orders = 1 << int(scratch.fields.chosen[1])
        if not self._finds_path:
            return self._record(scratch, orders)
        if not self._by_rule:
            return self._follow_path(scratch)
        best = self._key(scratch, self._record(scratch, orders))
        followed_s = self._follow_path(scratch)
        return followed_s if self._key(scratch, followed_s) < best else self._record(scratch, orders)

    def _record(self, scratch: ByAddress[Scratch], orders: int) -> float:
        if orders not in self._recording:
            self._recording[orders] = event.by_address(self.flags._replace(phase_orders=orders, record=True))
        return float(event.simulate(self.at, scratch, self._recording[orders], *self._none, np.inf, 0, 0))

    def _follow_path(self, scratch: ByAddress[Scratch]) -> float:
        """Simulates a step whose devices follow the critical path, then one with phases that keep to that order."""
        fields = scratch.fields
        event.simulate(self._ranked[0], scratch, self._ranked[1], *self._none, np.inf, 0, 0)
        fields.phase[:] = self._stretches(fields.device.astype(np.int32), fields.start, self.program.seconds)
        return self._record(scratch, _GIVEN)

    def _key(self, scratch: ByAddress[Scratch], step_s: float) -> Key:
        if np.isinf(step_s):  # ops wait for one another
            return FAILED_BYTES, step_s
        return int(np.maximum(scratch.fields.devices["peak"] - self.program.limit, 0).sum()), step_s

    def keys(self, scratch: ByAddress[Scratch], batch: Batch, limit_s: float, first: int, end: int) -> None:
        """Writes the keys of the placements `first` to `end` of the batch."""
        if self._finds_path:
            self._keys_one_by_one(scratch, batch, limit_s, first, end)
            return
        limited = limit_s < np.inf
        program, flags = (self._with_rest, self._limited) if limited else (self.at, self._plain)
        if first < end:
            event.simulate(program, scratch, flags, *batch, limit_s, first, end)

    def _keys_one_by_one(self, scratch: ByAddress[Scratch], batch: Batch, limit_s: float, first: int, end: int) -> None:
        for b in range(first, end):
            scratch.fields.device[:] = self.problem.spread(batch.units[b])
            step_s = self.run(scratch)
            within = step_s <= limit_s
            batch.over[b], batch.step_s[b] = self._key(scratch, step_s) if within else (FAILED_BYTES, np.inf)


def _numbered(phases: IntArray) -> IntArray:
    """[V] the same phases, numbered from 0 without gaps."""
    values, numbers = np.unique(phases, return_inverse=True)
    return (numbers - np.count_nonzero(values < 0)).astype(np.int32)


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
