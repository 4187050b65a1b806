"""An event simulator in plain Python by the default rules of docs/reference/simulator.md, to measure ours against.

Written as one writes it for speed in Python: a heap of events, lists instead of dicts where keys are dense, everything
that does not depend on the placement worked out before. It gives the same keys, which the benchmark checks.
"""

from __future__ import annotations

import heapq

import numpy as np

from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key
from tfplace.simulation.program import compile_problem

OP_FINISHES, TRANSFER_ENDS, TRANSFER_STARTS = range(3)


class PlainSimulator:
    """`Simulator.key` in plain Python.

    Args:
      problem: what is placed; with no overheads on its links.
    """

    def __init__(self, problem: Problem) -> None:
        program = compile_problem(problem)
        ops, messages = program.ops[:-1], program.messages[:-1]
        self.unit = ops["unit"].tolist()
        self.trips = ops["trips"].tolist()
        self.reads = ops["reads"].tolist()
        self.persistent = ops["persistent"].tolist()
        self.seconds = program.seconds.tolist()
        self.outputs = _rows(range(len(messages)), program.ops["first"])
        self.inputs = _rows(program.input.tolist(), program.ops["input_first"])
        self.readers = _rows(program.reader.tolist(), program.messages["reader_first"])
        self.maker = messages["maker"].tolist()
        self.alias = messages["alias"].tolist()
        self.offers = _rows(program.forward.tolist(), program.messages["forward_first"])
        self.variable = messages["variable"].tolist()
        self.read_of = messages["read_of"].tolist()
        self.held = messages["held"].tolist()
        self.writes = ops["writes"].tolist()
        self.workspace = program.workspace.tolist()
        self.size = messages["size"].tolist()
        self.latency = program.links["latency"].tolist()
        self.bandwidth = program.links["bandwidth"].tolist()
        self.channels = [[[c for c in row if c >= 0] for row in rows] for rows in program.channels.tolist()]
        self.num_channels = int(program.channels.max(initial=-1)) + 1
        self.limit = program.limit.tolist()

    def key(self, unit_device: np.ndarray) -> Key:
        """(bytes over the limits, step seconds)."""
        return _Run(self, unit_device).key()


def _rows(values: list[int] | range, offsets: np.ndarray) -> list[list[int]]:
    return [list(values[a:b]) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


class _Run:
    def __init__(self, plan: PlainSimulator, unit_device: np.ndarray) -> None:
        devices = unit_device.tolist()
        self.plan = plan
        self.device = [devices[unit] if unit >= 0 else 0 for unit in plan.unit]
        self.missing = plan.reads.copy()
        self.ready: list[list[tuple[float, int]]] = [[] for _ in plan.limit]
        self.running = [False] * len(plan.limit)
        self.in_use = [0] * len(plan.limit)
        self.holders: dict[tuple[int, int], int] = {}
        self.alias = plan.alias.copy()
        self.read: dict[int, int] = {}  # variable -> what still holds what was read of it
        self.copied: set[int] = set()
        self.free = [0.0] * plan.num_channels
        self.sent: list[tuple[int, int]] = []
        self.events: list[tuple[float, int, int]] = []

    def key(self) -> Key:
        plan, events = self.plan, self.events
        for v, reads in enumerate(plan.reads):
            if reads >= 0:
                self.in_use[self.device[v]] += plan.persistent[v]
                if reads == 0:
                    heapq.heappush(self.ready[self.device[v]], (0.0, v))
        now = 0.0
        self._start_all(now)
        peak = self.in_use.copy() if not events or events[0][0] > now else [0] * len(self.in_use)
        while events:
            now = events[0][0]
            while events and events[0][0] == now:
                while events and events[0][0] == now:
                    self._handle(heapq.heappop(events))
                self._start_all(now)
            for d, used in enumerate(self.in_use):
                peak[d] = max(peak[d], used)
        return sum(max(most - limit, 0) for most, limit in zip(peak, plan.limit, strict=True)), now

    def _handle(self, event: tuple[float, int, int]) -> None:
        now, kind, which = event
        if kind == OP_FINISHES:
            self._finish(which, now)
        elif kind == TRANSFER_ENDS:
            self._arrive(which, now)
        else:
            message, to = self.sent[which]
            self.in_use[to] += self.plan.size[message]

    def _start_all(self, now: float) -> None:
        for d, ready in enumerate(self.ready):
            if ready and not self.running[d]:
                self._start(heapq.heappop(ready)[1], d, now)

    def _start(self, v: int, d: int, now: float) -> None:
        plan, holders = self.plan, self.holders
        self.running[d] = True
        heapq.heappush(self.events, (now + plan.seconds[v][d], OP_FINISHES, v))
        self.in_use[d] += plan.workspace[v][d]
        if plan.writes[v]:
            self._write(v, d)
        for message in plan.outputs[v]:
            holders[message, d] = 1 + plan.held[message]
            if self.alias[message] < 0:
                self.alias[message] = self._taken_over(message, d)
            if self.alias[message] < 0:
                self.in_use[d] += plan.size[message]
                continue
            holders[self.alias[message], d] += 1
            variable = plan.read_of[message]
            if variable >= 0 and self.device[variable] == d:
                self.read[variable] = self.read.get(variable, 0) + 1

    def _write(self, v: int, d: int) -> None:
        for message in self.plan.inputs[v]:
            variable = self.plan.variable[message]
            if variable >= 0 and self.device[variable] == d and self.read.get(variable) and variable not in self.copied:
                self.copied.add(variable)
                self.in_use[d] += self.plan.persistent[variable]

    def _taken_over(self, message: int, d: int) -> int:
        for offered in self.plan.offers[message]:
            held = offered
            while self.holders[held, d] == 1:
                if self.device[self.plan.maker[held]] != d or self.alias[held] < 0:
                    return offered
                held = self.alias[held]
        return -1

    def _finish(self, v: int, now: float) -> None:
        plan, device, holders = self.plan, self.device, self.holders
        d = device[v]
        self.running[d] = False
        self.in_use[d] -= plan.workspace[v][d]
        for message in plan.inputs[v]:
            self._release(message, d)
        for message in plan.outputs[v]:
            elsewhere: dict[int, int] = {}
            for reader in plan.readers[message]:
                to = device[reader]
                if to == d:
                    holders[message, d] += 1
                    self._receive(reader, now)
                else:
                    elsewhere[to] = elsewhere.get(to, 0) + 1
            for to in sorted(elsewhere):
                holders[message, d] += 1
                holders[message, to] = elsewhere[to]
                self._send(message, d, to, now)
            self._release(message, d)

    def _receive(self, v: int, now: float) -> None:
        self.missing[v] -= 1
        if self.missing[v] == 0:
            heapq.heappush(self.ready[self.device[v]], (now, v))

    def _send(self, message: int, d: int, to: int, now: float) -> None:
        plan, free = self.plan, self.free
        channels = plan.channels[d][to]
        start = now
        for channel in channels:
            start = max(start, free[channel])
        trips = plan.trips[plan.maker[message]]
        end = start + (trips * plan.latency[d][to] + trips * plan.size[message] / plan.bandwidth[d][to])
        for channel in channels:
            free[channel] = end
        heapq.heappush(self.events, (end, TRANSFER_ENDS, len(self.sent)))
        if start > now:
            heapq.heappush(self.events, (start, TRANSFER_STARTS, len(self.sent)))
        else:
            self.in_use[to] += plan.size[message]
        self.sent.append((message, to))

    def _arrive(self, transfer: int, now: float) -> None:
        message, to = self.sent[transfer]
        for reader in self.plan.readers[message]:
            if self.device[reader] == to:
                self._receive(reader, now)
        self._release(message, self.device[self.plan.maker[message]])

    def _release(self, message: int, d: int) -> None:
        plan, holders = self.plan, self.holders
        while True:
            holders[message, d] -= 1
            if holders[message, d]:
                return
            if self.alias[message] < 0 or self.device[plan.maker[message]] != d:
                self.in_use[d] -= plan.size[message]
                return
            variable = plan.read_of[message]
            if variable >= 0 and self.device[variable] == d:
                self.read[variable] -= 1
                if not self.read[variable] and variable in self.copied:
                    self.copied.remove(variable)
                    self.in_use[d] -= plan.persistent[variable]
            message = self.alias[message]
