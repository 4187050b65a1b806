"""Every way to run a step on some devices, from one device to what a search finds, op by op and compiled."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.compilation import AUTO, NONE, XLA, wants_xla
from tfplace.core.fidelity import error_band
from tfplace.core.placement import Placement
from tfplace.core.plan import ALONE, SEARCHED, STRATEGY, Larger, Plan, PlanRow
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.errors import InfeasibleError
from tfplace.local_search.devices import compute_devices, single_device
from tfplace.options import SearchOptions
from tfplace.search.clock import Clock
from tfplace.search.compilations import run_otherwise
from tfplace.search.mirrored import mirrored_cost
from tfplace.search.over_slices import OverSlices, Sizes, search_over_slices
from tfplace.search.place import placement_of
from tfplace.search.slice_starts import USUAL
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.evaluate import Simulator

_NOT_COMPILED = (
    "Keras has XLA off under a strategy; asked for it, fit failed where it was tried, on two CPUs "
    "(TensorFlow 2.21, Keras 3.15)"
)
"""XLA: "Trying to access resource ... located in device CPU:1 from device CPU:0"."""

_NOT_IN_FIT = "a strategy has to be entered before the model is made"

_NOT_ASKED = "the model does not ask for jit_compile; compile='xla' takes it"

_STOPPED = "interrupted before all was tried"

_NO_RULES = "the strategy knows no rules that pin, forbid or colocate ops"


def make_plan(
    read: Callable[[Sizes], Problem],
    search: Callable[[Problem, SearchOptions], Placement],
    options: SearchOptions,
    remedy: Callable[[Placement], Placement],
    *,
    exact: bool = False,
    larger: Larger | None = None,
) -> Plan:
    """Searches over slices, and sets what it finds beside what a user would take without a search.

    Args:
      read: see `tfplace.search.over_slices.place_over_slices`.
      search: as there.
      options: as there. Rows are compiled as well as op by op unless `options.compile` says one of them.
      remedy: makes of a placement one whose step takes no more memory than there is, by computing results again. Raises
        InfeasibleError where it cannot.
      exact: whether only rows may be chosen whose numbers are those of the plain step but for rounding.
      larger: see `Plan`.

    Raises:
      ConstraintError: a rule matches no op with any number of slices.
      KeyboardInterrupt: before anything was found.
    """
    run = search_over_slices(read, search, dataclasses.replace(options, baselines=()))  # rows are what it is set beside
    rows: list[PlanRow] = []
    try:
        for rows_of in (partial(_alone, options=options), _strategy, _usual, _searched):
            rows += rows_of(run)
        rows += _recomputing(rows, remedy)
    except KeyboardInterrupt:
        if not run.found:
            raise
        run.interrupted = True
        if all(row.way != SEARCHED for row in rows):
            rows += [_of(placement, SEARCHED, run.search_s.get(sizes, 0.0)) for sizes, placement in run.found.items()]
    kept = rows if options.compile == AUTO else [row for row in rows if row.compile == options.compile]
    some = next(iter(run.problems.values()))
    slices = next((p.graph.slices for p in run.problems.values() if p.graph.slices is not None), None)
    return Plan(
        rows=tuple(sorted(kept, key=lambda row: (*row.cost.key, row.simplicity))),
        model=some.graph.name,
        topology_name=some.topology.name,
        examples=0 if slices is None else sum(slices.sizes),
        exact=exact,
        notes=(*run.log, *([_STOPPED] if run.interrupted else [])),
        graph_fingerprint=some.graph.fingerprint,
        topology_fingerprint=some.topology.fingerprint,
        larger=larger,
    )


def plan_of_fit(plan: Plan, compile: str) -> Plan:
    """The plan of a `fit` that has begun, which cannot take all ways.

    Args:
      plan: of the model's step.
      compile: what the user asked for. With `AUTO` only a program that asks for jit_compile is compiled.
    """
    problems = [row.placement.problem for row in plan.rows if row.placement is not None]
    may_compile = any(problem is not None and wants_xla(compile, problem.graph) for problem in problems)

    def obstacle(row: PlanRow) -> str:
        if row.placement is None:
            return row.obstacle or _NOT_IN_FIT
        return row.obstacle if row.compile == NONE or may_compile else _NOT_ASKED

    return dataclasses.replace(plan, rows=tuple(dataclasses.replace(row, obstacle=obstacle(row)) for row in plan.rows))


def _alone(run: OverSlices, options: SearchOptions) -> list[PlanRow]:
    """The best device of each type; and where it does not fit there, slice by slice, which accumulates gradients."""
    rows: list[PlanRow] = []
    whole = run.problems.get(None)
    for problem in run.problems.values():
        if problem is not whole and any(row.cost.feasible for row in rows):
            break  # the fewest slices that fit are the fastest
        for d in _best_devices(problem):
            clock = Clock()
            placement = _placement(problem, single_device(problem, d), ALONE, options)
            rows += _both_ways(placement, ALONE, clock.seconds)
    return rows


def _best_devices(problem: Problem) -> list[int]:
    """The fastest device of each type on which anything may be."""
    seconds = problem.costs.compute_s.sum(axis=0)
    best: dict[str, int] = {}
    for d in np.argsort(seconds, kind="stable").tolist():
        if d in compute_devices(problem) or problem.topology.devices[d].type == "CPU":
            best.setdefault(problem.topology.devices[d].type, d)
    return list(best.values())


def _strategy(run: OverSlices) -> list[PlanRow]:
    rows: list[PlanRow] = []
    for problem in run.problems.values():
        slices = problem.graph.slices
        if slices is None or len(slices.sizes) != len(compute_devices(problem)):
            continue
        for one in (problem, problem.otherwise):
            if one is not None:
                clock = Clock()
                cost = mirrored_cost(one)
                row = _row(STRATEGY, one, cost, None, clock.seconds)
                ruled = _NO_RULES if one.constraints.patterns else ""
                rows.append(dataclasses.replace(row, obstacle=_NOT_COMPILED if one.compile == XLA else ruled))
    return rows


def _usual(run: OverSlices) -> list[PlanRow]:
    """Data parallelism and pipelines; the other way of only the best of each number of slices, which takes a while."""
    rows = []
    for sizes, starts in run.starts.items():
        took_s = run.start_s[sizes]
        usual = [start for start in starts if start.placer in USUAL]
        best = min(usual, key=lambda start: start.cost.key, default=None)
        for start in usual:
            rows += _both_ways(start, start.placer, took_s) if start is best else [_of(start, start.placer, took_s)]
    return rows


def _searched(run: OverSlices) -> list[PlanRow]:
    rows = []
    for sizes, placement in run.found.items():
        rows += _both_ways(placement, SEARCHED, run.search_s.get(sizes, 0.0))
    return rows


def _recomputing(rows: Sequence[PlanRow], remedy: Callable[[Placement], Placement]) -> list[PlanRow]:
    """What does not fit, made to, where it would be faster than all that fits."""
    fits_s = min((row.cost.step_s for row in rows if row.cost.feasible and not row.obstacle), default=np.inf)
    misfits: dict[str, PlanRow] = {}
    for row in sorted(rows, key=lambda row: row.cost.step_s):
        if _may_recompute(row) and not row.cost.feasible and row.cost.step_s < fits_s:
            misfits.setdefault(row.way, row)
    found = []
    for row in misfits.values():
        assert row.placement is not None
        clock = Clock()
        with contextlib.suppress(InfeasibleError):
            placement = remedy(row.placement)
            took_s = (row.found_s or 0.0) + clock.seconds
            made = dataclasses.replace(row, placement=placement, cost=placement.cost, found_s=took_s)
            found.append(dataclasses.replace(made, recomputes=True))
    return found


def _may_recompute(row: PlanRow) -> bool:
    if row.placement is None or row.placement.problem is None:
        return False
    return row.compile == NONE and row.placement.problem.graph.recomputes is None


def _both_ways(placement: Placement, way: str, found_s: float) -> list[PlanRow]:
    assert placement.problem is not None
    clock = Clock()
    other = run_otherwise(placement, Simulator(placement.problem))
    rows = [_of(placement, way, found_s)]
    return rows if other is None else [*rows, _of(other, way, found_s + clock.seconds)]


def _of(placement: Placement, way: str, found_s: float) -> PlanRow:
    assert placement.problem is not None
    run = dataclasses.replace(placement, compile=placement.problem.compile)
    return _row(way, placement.problem, placement.cost, run, found_s)


def _row(way: str, problem: Problem, cost: StepCost, placement: Placement | None, found_s: float) -> PlanRow:
    slices = problem.graph.slices
    return PlanRow(
        way=way,
        slices=() if slices is None else slices.sizes,
        compile=problem.compile,
        cost=cost,
        placement=placement,
        same_numbers=slices is None or not slices.differences,
        differs="" if slices is None or not slices.differences else slices.verdict,
        error=error_band(problem),
        found_s=found_s,
    )


def _placement(problem: Problem, units: IntArray, placer: str, options: SearchOptions) -> Placement:
    return placement_of(
        problem,
        units,
        Simulator(problem)(units),
        bound_s=lower_bound(problem).seconds,
        placer=placer,
        seed=options.seed,
        baselines={},
    )
