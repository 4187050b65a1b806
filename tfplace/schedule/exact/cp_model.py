"""Placement as constraint programs for CP-SAT, and what it says of them. Runs in a process of its own (`cp_process`).

All seconds are rounded down to whole ticks. So every placement's value, in ticks and rounded down, is also a solution's
value, and what CP-SAT proves to be out of reach is out of reach for every placement.
"""

# Terms are gathered in lists that helpers are given.
# ruff: noqa: PLR0917

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.simulation.pipeline import compile_loads
from tfplace.simulation.program import compile_problem

_TICKS = 1_000_000
"""In the value of the best known placement: sums of thousands of rounded numbers stay within a thousandth of it."""

_ENDLESS = 2**40
"""Ticks, of which a solution has a millionth at most."""

_NAMED = 40
"""Of the largest units, the first not on one of several devices alike is on the next: without that, every placement
would be searched once for each way to name the devices."""

_LEAST_S = 0.1
"""For CP-SAT, however late it is: to say at least what bound there is."""

_TRANSFERS = 20_000
"""With more possible transfers than this, links are as wide as needed: it is their latency that counts."""


@dataclass
class Model:
    """A program.

    Attributes:
      cp: the `CpModel`.
      on: [U][D] literals: the unit is on the device; None where it may not be.
      tick_s: seconds of one tick.
      value: the variable that is made small, in ticks.
      hints: variable and value, of the placement to start from.
    """

    cp: Any
    on: list[list[Any]]
    tick_s: float
    value: Any
    hints: list[tuple[Any, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    """What CP-SAT found and proved.

    Attributes:
      bound_s: no placement that fits has a smaller value; 0 if nothing is known.
      found: [U] devices of each better solution it found, the best last.
      status: as CP-SAT names it: "OPTIMAL", "FEASIBLE", "INFEASIBLE" or "UNKNOWN".
    """

    bound_s: float
    found: list[IntArray]
    status: str


@dataclass(frozen=True)
class Limits:
    """How long CP-SAT may go on.

    Attributes:
      until: when it ends at the latest, as `time.time()` tells it, so that to start and to build the model counts too;
        None for a limit by `work`, with which the answer is always the same.
      work: deterministic seconds, as CP-SAT counts its steps; used, on one thread, without `until`.
      threads: with `until`.
    """

    until: float | None
    work: float
    threads: int


def load_cp_sat() -> Any:
    """The `cp_model` module of OR-Tools."""
    from ortools.sat.python import cp_model

    return cp_model


def solve(model: Model, limits: Limits) -> Answer:
    """Runs CP-SAT."""
    cp_model = load_cp_sat()
    for variable, value in model.hints:
        model.cp.add_hint(variable, value)
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = 1
    if limits.until is None:
        solver.parameters.num_workers, solver.parameters.max_deterministic_time = 1, limits.work
    else:
        solver.parameters.num_workers = limits.threads
        solver.parameters.max_time_in_seconds = max(limits.until - time.time(), _LEAST_S)
    found: list[IntArray] = []

    class _Keep(cp_model.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
        def on_solution_callback(self) -> None:
            rows = [[x is not None and self.boolean_value(x) for x in row] for row in model.on]
            found.append(np.array(rows, np.bool_).argmax(axis=1).astype(np.int32))

    status = str(solver.status_name(solver.solve(model.cp, _Keep())))
    # The start is feasible: where CP-SAT finds nothing to be, the evaluator counts otherwise than the model does.
    ticks = 0.0 if status == "INFEASIBLE" else max(solver.best_objective_bound, 0.0)
    return Answer(ticks * model.tick_s, found, status)


# ---- throughput ------------------------------------------------------------------------------------------------------


def throughput_model(problem: Problem, start: IntArray, start_s: float) -> Model:
    """The largest load, as docs/concepts/objectives.md defines it, with all that it counts.

    After the throughput IP of Tarnawski et al. 2020. Theirs has one cost per tensor; here a tensor's cost at a device
    depends on the link: it has a literal for each different number of seconds, of which the sender's add up to the
    slowest.

    Args:
      problem: what is placed.
      start: [U] a placement that fits.
      start_s: its largest load.
    """
    p = compile_loads(problem)
    model = _start(problem, start, start_s)
    most = math.floor(start_s / model.tick_s)
    model.value = model.cp.new_int_var(0, most, "load")
    costs: list[list[Any]] = [[] for _ in p.limit]
    held: list[list[Any]] = [[] for _ in p.limit]
    for u, row in enumerate(model.on):
        for d, x in enumerate(row):
            if x is not None:
                costs[d].append((x, _ticks(float(p.seconds[u, d]), model)))
                held[d].append((x, int(p.unit_bytes[u])))
    for m in range(len(p.maker)):
        readers = p.reader[p.first[m] : p.first[m + 1]].tolist()
        out, into = (p.trips[m] * table[0] + p.volume[m] * table[1] for table in (p.out, p.into))
        for d in range(problem.num_devices):
            _receive(model, int(p.maker[m]), readers, d, into[:, d], int(p.size[m]), costs[d], held[d])
            _send(model, int(p.maker[m]), readers, d, out[d], costs[d])
    for d in range(problem.num_devices):
        model.cp.add(_weighted(costs[d]) <= model.value)
        model.cp.add(_weighted(held[d]) <= int(p.limit[d]))
    model.cp.minimize(model.value)
    return model


def _receive(
    model: Model, maker: int, readers: Sequence[int], d: int, seconds: FloatArray, size: int, costs: Any, held: Any
) -> None:
    """What device d spends on and holds of a message that a reader there gets from elsewhere."""
    by_cost: dict[int, list[Any]] = {}
    for s, x in enumerate(model.on[maker]):
        if s != d and x is not None:
            by_cost.setdefault(_ticks(float(seconds[s]), model), []).append(x)
    for ticks, sources in by_cost.items():
        if not ticks and not size:
            continue
        got = model.cp.new_bool_var("")
        for r in readers:
            if model.on[r][d] is not None:
                model.cp.add(got >= model.on[r][d] + sum(sources) - 1)
        costs.append((got, ticks))
        held.append((got, size))


def _send(model: Model, maker: int, readers: Sequence[int], d: int, seconds: FloatArray, costs: Any) -> None:
    """What device d spends on a message made there: as long as the slowest of its transfers takes."""
    here = model.on[maker][d]
    if here is None:
        return
    ticks = {e: _ticks(float(seconds[e]), model) for e in range(len(seconds)) if e != d}
    for low, high in itertools.pairwise([0, *sorted({t for t in ticks.values() if t})]):
        far = [e for e, t in ticks.items() if t >= high]
        sent = model.cp.new_bool_var("")
        for r in readers:
            there = [model.on[r][e] for e in far if model.on[r][e] is not None]
            if there:
                model.cp.add(sent >= here + sum(there) - 1)
        costs.append((sent, high - low))


# ---- step time -------------------------------------------------------------------------------------------------------


def step_model(problem: Problem, start: IntArray, start_s: float, begin_s: FloatArray) -> Model:
    """A schedule of every op and transfer, as free as docs/reference/simulator.md leaves it and freer.

    As simulated: an op runs on its unit's device, one at a time, after all it reads is there; a message is sent once to
    each device that reads it, over the wire for its seconds, and occupies the channels of its link alone. Left out,
    which only lets schedules be shorter: the order in which a device starts ops and channels take transfers, the work
    of transfers on devices, and memory but for variables. With more than 20,000 possible transfers channels are left
    out too.

    Args:
      problem: what is placed.
      start: [U] a placement that fits.
      start_s: its simulated step.
      begin_s: [V] when its ops start.
    """
    model = _start(problem, start, start_s)
    cp = model.cp
    most = math.floor(start_s / model.tick_s)
    model.value = cp.new_int_var(0, most, "step")
    begin, took = _ops(model, problem, begin_s, most)
    for v in begin:
        cp.add(begin[v] + took[v] <= model.value)
    _transfers(model, problem, begin, took, most)
    held = np.zeros(problem.num_units, np.int64)
    inside = problem.grouping.unit_of >= 0
    np.add.at(held, problem.grouping.unit_of[inside], problem.graph.persistent_bytes[inside])
    for d in range(problem.num_devices):
        here = [(row[d], u) for u, row in enumerate(model.on) if row[d] is not None]
        cp.add(_weighted([(x, int(held[u])) for x, u in here]) <= int(problem.memory_limit[d]))
    cp.minimize(model.value)
    return model


def _ops(model: Model, problem: Problem, begin_s: FloatArray, most: int) -> tuple[dict[int, Any], dict[int, Any]]:
    """Start and seconds of every op, one at a time on a device."""
    cp, seconds = model.cp, problem.costs.compute_s
    begin: dict[int, Any] = {}
    took: dict[int, Any] = {}
    busy: list[list[Any]] = [[] for _ in range(problem.num_devices)]
    load: list[list[Any]] = [[] for _ in range(problem.num_devices)]
    for v in np.flatnonzero(~problem.graph.replicable).tolist():
        begin[v] = cp.new_int_var(0, most, "")
        model.hints.append((begin[v], math.floor(float(begin_s[v]) / model.tick_s)))
        terms = []
        for d, x in enumerate(model.on[problem.grouping.unit_of[v]]):
            ticks = _ticks(float(seconds[v, d]), model)
            if x is None or not ticks:
                continue
            terms.append((x, ticks))
            load[d].append((x, ticks))
            busy[d].append(cp.new_optional_fixed_size_interval_var(begin[v], ticks, x, ""))
        took[v] = _weighted(terms)
    for d in range(problem.num_devices):
        cp.add_no_overlap(busy[d])
        cp.add(_weighted(load[d]) <= model.value)
    return begin, took


def _transfers(model: Model, problem: Problem, begin: dict[int, Any], took: dict[int, Any], most: int) -> None:
    program = compile_problem(problem)
    units, devices = problem.grouping.unit_of, problem.num_devices
    channels: dict[int, list[Any]] = {}
    wide = (len(program.messages) - 1) * devices * (devices - 1) > _TRANSFERS
    for m in range(len(program.messages) - 1):
        message, after = program.messages[m], program.messages[m + 1]
        readers = program.reader[message["reader_first"] : after["reader_first"]].tolist()
        maker = int(message["maker"])
        for r in readers:
            model.cp.add(begin[r] >= begin[maker] + took[maker])
        apart = {int(units[r]) for r in readers} - {int(units[maker])}
        wire = program.links["latency"] * problem.graph.trips[maker] + message["volume"] / program.links["bandwidth"]
        for d in range(devices):
            there = [r for r in readers if units[r] in apart and model.on[units[r]][d] is not None]
            sources = [
                s for s in range(devices)
                if s != d and model.on[units[maker]][s] is not None and _ticks(float(wire[s, d]), model)
            ]  # fmt: skip
            if not there or not sources:
                continue
            arrives = begin[maker] + took[maker] if wide else model.cp.new_int_var(0, most, "")
            if not wide:
                model.cp.add(arrives >= begin[maker] + took[maker])
            for s in sources:
                ticks = _ticks(float(wire[s, d]), model)
                sent = model.cp.new_bool_var("")
                for u in {int(units[r]) for r in there}:
                    model.cp.add(sent >= model.on[units[maker]][s] + model.on[u][d] - 1)
                for r in there:
                    model.cp.add(begin[r] >= arrives + ticks).only_enforce_if(sent, model.on[units[r]][d])
                if not wide:
                    interval = model.cp.new_optional_fixed_size_interval_var(arrives, ticks, sent, "")
                    for c in program.channels[s, d]:
                        channels.setdefault(int(c), []).append(interval)
    for c, intervals in channels.items():
        if c >= 0:
            model.cp.add_no_overlap(intervals)


# ---- both ------------------------------------------------------------------------------------------------------------


def _start(problem: Problem, start: IntArray, start_s: float) -> Model:
    """Units on devices, and where they start."""
    cp = load_cp_sat().CpModel()
    order = np.argsort(-problem.unit_seconds.min(axis=1), kind="stable").tolist()
    kind = interchangeable(problem)
    named = _renamed(start, kind, order)
    on: list[list[Any]] = []
    hints = []
    for u, row in enumerate(problem.allowed):
        literals = [cp.new_bool_var(f"{u} on {d}") if may else None for d, may in enumerate(row)]
        cp.add_exactly_one([x for x in literals if x is not None])
        hints += [(x, int(named[u] == d)) for d, x in enumerate(literals) if x is not None]
        on.append(literals)
    for same in (np.flatnonzero(kind == k).tolist() for k in np.unique(kind)):
        for before, after in itertools.pairwise(same):
            for i, u in enumerate(order[:_NAMED]):
                if on[u][after] is not None:
                    cp.add(on[u][after] <= sum(on[v][before] for v in order[:i] if on[v][before] is not None))
    return Model(cp, on, start_s / _TICKS if start_s > 0 else 1.0, None, hints)


def interchangeable(problem: Problem) -> IntArray:
    """[D] devices that could swap names without a difference to any placement have the same number."""
    topology = problem.topology
    links = {(link.src, link.dst): dataclasses.replace(link, src="", dst="") for link in topology.links}
    names = topology.device_names

    def alike(a: int, b: int) -> bool:
        columns = (problem.costs.compute_s, problem.allowed, problem.memory_limit[None])
        one, two = topology.devices[a], topology.devices[b]
        if (one.type, one.duplex) != (two.type, two.duplex) or any(np.any(c[:, a] != c[:, b]) for c in columns):
            return False
        swap = {names[a]: names[b], names[b]: names[a]}
        return all(
            links[x, y] == links[swap.get(x, x), swap.get(y, y)] and not links[x, y].shared
            for x, y in links
            if x in swap or y in swap
        )

    kind = list(range(len(names)))
    for b in range(len(names)):
        kind[b] = next((kind[a] for a in range(b) if kind[a] == a and alike(a, b)), b)
    return np.array(kind, np.int32)


def _renamed(devices: IntArray, kind: IntArray, order: Sequence[int]) -> IntArray:
    """[U] the same placement; of devices alike the one with the first unit of the order comes first."""
    name = np.arange(len(kind), dtype=np.int32)
    for k in np.unique(kind):
        same = np.flatnonzero(kind == k)
        seen = list(dict.fromkeys(int(d) for d in devices[order] if kind[d] == k))
        name[seen + [d for d in same.tolist() if d not in seen]] = same
    return name[devices]


def _ticks(seconds: float, model: Model) -> int:
    """Seconds rounded down; by a hair more, so that no quotient is rounded up to a whole tick.

    Far above what any solution may take they are all the same, so that their sum is an integer that CP-SAT knows.
    """
    return math.floor(min(seconds / model.tick_s * (1 - 1e-12), _ENDLESS))


def _weighted(terms: Sequence[tuple[Any, int]]) -> Any:
    used = [(x, weight) for x, weight in terms if weight]
    cp_model = load_cp_sat()
    return cp_model.LinearExpr.weighted_sum([x for x, _ in used], [w for _, w in used])
