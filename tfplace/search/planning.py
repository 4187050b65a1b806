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
from tfplace.errors import ConstraintError, InfeasibleError, SplitError
from tfplace.local_search.devices import compute_devices, single_device
from tfplace.options import SearchOptions
from tfplace.search.budget import Budget
from tfplace.search.clock import Clock
from tfplace.search.compilations import run_otherwise
from tfplace.search.mirrored import mirrored_cost
from tfplace.search.on_host import held_by_host
from tfplace.search.over_slices import OverSlices, Sizes, search_over_slices
from tfplace.search.place import placement_of
from tfplace.search.remedies import Pricing, remedied
from tfplace.search.slice_starts import DATA_PARALLEL, USUAL, slice_starts
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.evaluate import Simulator

_NOT_COMPILED = (
    "Keras turns XLA off under a strategy; with jit_compile=True, fit failed on two CPUs (TensorFlow 2.21, Keras 3.15)"
)
"""XLA: "Trying to access resource ... located in device CPU:1 from device CPU:0"."""

_NOT_IN_FIT = "a model has to be made in the scope of the strategy"

_NOT_ASKED = "the model does not ask for jit_compile; compile='xla' allows it"

STOPPED = "interrupted before all was tried"

PACKED_PARALLEL = f"{DATA_PARALLEL}, packed"

_NEARLY = 2.0
"""Data parallelism is tried packed where it takes at most so many times as long as the best way."""

_FOR_COMPILED = 0.2
"""Part of the budget for a search with the costs of compiled steps; the others have those op by op."""

_FAR = 1.5
"""More slices are tried where what fits takes so many times as long as the fastest way with enough memory."""

_LESS = 0.9
"""Twice as many slices are of use if they exceed memory by at most such a part: weights do not shrink with them."""

_MOST_OPS = 150_000
"""Ops of a step that is still read for one more way: a minute or so."""

_RECOMPUTING_S = 30.0
"""Seconds for which choices of what to compute again are tried at least; of a large step they are a few."""

_NO_RULES = "the strategy does not support rules that pin, forbid or colocate ops"


def make_plan(
    read: Callable[[Sizes], Problem],
    search: Callable[[Problem, SearchOptions], Placement],
    options: SearchOptions,
    less: Callable[[Placement, Callable[[], bool]], Placement],
    *,
    exact: bool = False,
    larger: Larger | None = None,
    read_packed: Callable[[Sizes], Problem] | None = None,
) -> Plan:
    """Searches over slices, and sets what it finds beside what a user would take without a search.

    Args:
      read: see `tfplace.search.over_slices.place_over_slices`.
      search: as there.
      options: as there. Rows are compiled as well as op by op unless `options.compile` says one of them.
      less: makes of a placement one whose step fits, or exceeds memory least, by computing results again, and asks
        after each choice of these whether to go on: for the seconds of the budget, but at least `_RECOMPUTING_S`.
      exact: whether only rows may be chosen whose numbers are those of the plain step but for rounding.
      larger: see `Plan`.
      read_packed: as `read`, with small gradients and variables sent packed together; None where that is not done.

    Raises:
      ConstraintError: a rule matches no op with any number of slices.
      KeyboardInterrupt: before anything was found.
    """
    options = dataclasses.replace(options, baselines=())  # rows are what it is set beside
    of_compiled = _part(options, _FOR_COMPILED) if options.compile == AUTO else None
    run = search_over_slices(read, search, options if of_compiled is None else _part(options, 1 - _FOR_COMPILED))
    rows: list[PlanRow] = []
    try:
        for rows_of in (partial(_alone, options=options), _strategy, _usual, _searched):
            rows += rows_of(run)
        if read_packed is not None:
            rows += _packed(run, rows, read_packed, options)
        if of_compiled is not None:
            better = _searched_compiled(rows, search, of_compiled)
            rows = [row for row in rows if row.name not in {one.name for one in better}] + better
        limit_s = Budget.parse(options.budget).seconds
        limit_s = np.inf if limit_s is None else max(limit_s, _RECOMPUTING_S)
        pricing = Pricing(less, partial(_priced_if_it_fits, options=options), limit_s)
        rows += remedied(rows, pricing, _best_s(rows))
        _split_further(run, rows, pricing, options)
        if pricing.ended:
            run.log.append(f"recomputing: not all choices were tried, as {limit_s:.0f} s were over")
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
        notes=(*run.log, *([STOPPED] if run.interrupted else [])),
        graph_fingerprint=some.graph.fingerprint,
        topology_fingerprint=some.topology.fingerprint,
        larger=larger,
    )


def was_interrupted(plan: Plan) -> bool:
    """Whether the user stopped what found it."""
    return STOPPED in plan.notes


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
    for problem in run.problems.values():
        rows += _alone_in(problem, rows, options)
    return rows


def _alone_in(problem: Problem, before: Sequence[PlanRow], options: SearchOptions) -> list[PlanRow]:
    """The best device of each type on which the step does not fit in fewer slices, which are the faster."""
    fitting = {_device_type(row) for row in before if row.cost.feasible and row.way == ALONE}
    rows: list[PlanRow] = []
    for d in _best_devices(problem):
        units = single_device(problem, d)
        if problem.topology.devices[d].type not in fitting and (units == d).any():
            rows += _priced(problem, units, ALONE, options)
    return rows


def _device_type(row: PlanRow) -> str:
    """The type of device that most ops of a way are on."""
    assert row.placement is not None
    assert row.placement.problem is not None
    return row.placement.problem.topology.devices[int(np.bincount(row.placement.op_device).argmax())].type


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
        devices = len(compute_devices(problem))
        if slices is None or not 1 < len(slices.sizes) <= devices or max(slices.sizes) - min(slices.sizes) > 1:
            continue  # replicas get equal parts of the batch
        for one in (problem, problem.otherwise):
            if one is not None:
                clock = Clock()
                cost = mirrored_cost(one)
                row = _row(STRATEGY, one, cost, None, clock.seconds)
                ruled = _NO_RULES if one.constraints.patterns else ""
                obstacle = _NOT_COMPILED if one.compile == XLA else ruled
                rows.append(dataclasses.replace(row, obstacle=obstacle, on_part=len(slices.sizes) < devices))
    return rows


def _usual(run: OverSlices) -> list[PlanRow]:
    """Data parallelism and pipelines."""
    return [row for sizes in run.starts for row in _usual_in(run, sizes)]


def _usual_in(run: OverSlices, sizes: Sizes) -> list[PlanRow]:
    """Those of one number of slices; the other way of only the best of them, which takes a while."""
    took_s = run.start_s[sizes]
    usual = [start for start in run.starts[sizes] if start.placer in USUAL]
    best = min(usual, key=lambda start: start.cost.key, default=None)
    rows: list[PlanRow] = []
    for start in usual:
        rows += _both_ways(start, start.placer, took_s) if start is best else [_of(start, start.placer, took_s)]
    return rows


def _searched(run: OverSlices) -> list[PlanRow]:
    return [row for sizes in run.found for row in _searched_in(run, sizes)]


def _searched_in(run: OverSlices, sizes: Sizes) -> list[PlanRow]:
    return _both_ways(run.found[sizes], SEARCHED, run.search_s.get(sizes, 0.0))


def _packed(
    run: OverSlices, rows: Sequence[PlanRow], read: Callable[[Sizes], Problem], options: SearchOptions
) -> list[PlanRow]:
    """Data parallelism whose small messages are sent together, where data parallelism is nearly the best way."""
    plain = [row for row in rows if row.way == DATA_PARALLEL and row.cost.feasible]
    best = min(plain, key=lambda row: row.cost.step_s, default=None)
    if best is None or best.placement is None or best.cost.step_s > _NEARLY * _best_s(rows):
        return []
    if len(best.placement.op_device) > _MOST_OPS:
        run.log.append(f"{PACKED_PARALLEL}: not tried, as it has over {_MOST_OPS:,} ops")
        return []
    with contextlib.suppress(SplitError, ConstraintError):
        problem = read(best.slices)
        starts = slice_starts(problem, None, options.seed, (DATA_PARALLEL,))
        return [row for start in starts.placements for row in _both_ways(start, PACKED_PARALLEL, starts.seconds)]
    return []


def _searched_compiled(
    rows: Sequence[PlanRow], search: Callable[[Problem, SearchOptions], Placement], options: SearchOptions
) -> list[PlanRow]:
    """What a search from the best compiled way finds, with the costs of compiled steps."""
    compiled = [row for row in rows if row.compile == XLA and row.placement is not None and row.cost.feasible]
    best = min(compiled, key=lambda row: row.cost.step_s, default=None)
    if best is None or best.way == ALONE or best.placement is None or best.placement.problem is None:
        return []
    clock = Clock()
    try:
        found = search(best.placement.problem, dataclasses.replace(options, slices=None, init=best.placement))
    except InfeasibleError:
        return []
    return [_of(found, SEARCHED, clock.seconds)] if found.cost.step_s < best.cost.step_s else []


def _part(options: SearchOptions, part: float) -> SearchOptions:
    """The options with a part of the budget."""
    budget = Budget.parse(options.budget)
    amount = budget.seconds * part if budget.seconds is not None else max(int((budget.evaluations or 0) * part), 1)
    return dataclasses.replace(options, budget=amount)


def _split_further(run: OverSlices, rows: list[PlanRow], pricing: Pricing, options: SearchOptions) -> None:
    """Adds ways with more slices where what fits takes far longer than other ways would with more memory."""
    while (count := _further(run, rows)) is not None:
        problem = run.try_sizes(count)
        if problem is None:
            return
        new = _alone_in(problem, rows, options) + (_usual_in(run, count) if count in run.starts else [])
        new += _searched_in(run, count) if count in run.found else []
        rows += new
        rows += remedied(new, pricing, _best_s(rows))


def _further(run: OverSlices, rows: Sequence[PlanRow]) -> int | None:
    """The next number of slices to try; None if there is no need, or no use, or batch or graph do not allow for it."""
    fastest_s = min((row.cost.step_s for row in rows if not row.obstacle), default=np.inf)
    split = [problem.graph for problem in run.problems.values() if problem.graph.slices is not None]
    if _best_s(rows) <= _FAR * fastest_s or not split:
        return None
    over: dict[int, int] = {}  # slices -> bytes by which the nearest of the ways exceeds memory
    for row in rows:
        if row.way in (ALONE, *USUAL) and not row.host and not row.recomputes:
            over[len(row.slices)] = min(row.cost.excess_bytes, over.get(len(row.slices), row.cost.excess_bytes))
    most = max(split, key=lambda graph: len(graph.slices.sizes) if graph.slices is not None else 0)
    assert most.slices is not None
    count = len(most.slices.sizes)
    if not over.get(count, 0) or over[count] > _LESS * over.get(count // 2, np.inf):
        return None
    return 2 * count if 2 * count <= sum(most.slices.sizes) and 2 * most.num_ops <= _MOST_OPS else None


def _best_s(rows: Sequence[PlanRow]) -> float:
    """Seconds of the fastest way that can be taken."""
    return min((row.cost.step_s for row in rows if row.cost.feasible and not row.obstacle), default=np.inf)


def _priced(problem: Problem, units: IntArray, way: str, options: SearchOptions) -> list[PlanRow]:
    clock = Clock()
    return _both_ways(_placement(problem, units, way, options), way, clock.seconds)


def _priced_if_it_fits(problem: Problem, units: IntArray, way: str, options: SearchOptions) -> list[PlanRow]:
    """Both ways if it fits op by op, as the other takes a while."""
    clock = Clock()
    placement = _placement(problem, units, way, options)
    took_s = clock.seconds
    return _both_ways(placement, way, took_s) if placement.cost.feasible else [_of(placement, way, took_s)]


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
        host="" if placement is None else held_by_host(problem, placement.op_device),
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
