"""One search from problem to placement: run a placer, check what it says, and report it beside the baselines."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from tfplace.core.arrays import IntArray, digest
from tfplace.core.compilation import XLA
from tfplace.core.engine import Engine
from tfplace.core.evaluator import Evaluator
from tfplace.core.placement import COMPILED, FREE, Placement
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.stepcost import SIMULATED, STEP_TIME, StepCost, bare
from tfplace.cost.hidden import hidden_notes
from tfplace.errors import InfeasibleError, InputError, UnwrittenError, WorkersError
from tfplace.local_search.devices import single_device
from tfplace.options import BASELINES, OF_SLICES, SearchOptions
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.capabilities import check_controllers, check_workers
from tfplace.search.compilations import both_ways, cost_as_run, decided
from tfplace.search.crew import Crew
from tfplace.search.grouped import OnGroups
from tfplace.search.impossible import check_possible
from tfplace.search.many_workers import OnWorkers
from tfplace.search.mirrored import MIRRORED, mirrored_cost
from tfplace.search.ordered import best_order
from tfplace.search.progress import Progress
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import CANNOT_GO_ON, Search
from tfplace.search.shortage import infeasible
from tfplace.search.starts import quickly_placed, start_from
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import DEFAULT, WITHOUT_PHASES, Options
from tfplace.version import versions

_HELPERS: dict[type, str] = {WorkersError: "the workers", UnwrittenError: "the run directory"}
"""Who ends a search by an error, if not its evaluator."""

_INTERRUPTED = "interrupted after"

_REMEDIES = (
    "Look at the failure above: it names the device and what TensorFlow said.",
    "Search with evaluator='simulated' first: the simulator knows kernels and memory.",
    "Give the measurement a longer time-out, or the workers more memory.",
)


def search_placement(
    problem: Problem,
    *,
    evaluator: Evaluator | None = None,
    progress: Callable[[Progress], None] | None = None,
    logged: Callable[[int, Mapping[str, float]], None] | None = None,
    both_ways: bool = True,
    **options: Any,
) -> Placement:
    """Places `problem`; see `tfplace.place`, which this implements.

    Args:
      problem: what is placed.
      evaluator: tells what placements cost; by default the simulator.
      progress: called a few times a second.
      logged: called with the evaluations so far and what a policy says of its training.
      both_ways: whether the answer is priced compiled and op by op, or only as `evaluator` does.
      **options: those of `SearchOptions`.

    Raises:
      InfeasibleError: no placement can fit, the best one found exceeds a device's memory, or every one tried failed.
      InputError: an option is wrong, two do not go together, or `run_dir` is in use or of another search.
      ApplyError, ClusterError: the evaluator cannot tell what any placement costs.
      PlacementError: `init` is a placement for another graph or other devices.
      UnknownNameError: no such placer, grouper or option.
    """
    wanted = SearchOptions.of("search_placement", options).check()
    placer, seed, grouper, init = wanted.placer, wanted.seed, wanted.grouper, wanted.init
    names = wanted.baselines
    method: Placer = PLACERS[placer]()
    learned = {name: getattr(wanted, name) for name in ("weights", "fine_tune") if getattr(wanted, name) is not None}
    if learned:
        method = PLACERS[placer](**learned)
    accepts_starts, settings = method.accepts_starts, method.settings
    controllers = wanted.together
    engine = None if controllers is not None else cast("Engine | None", wanted.engine)
    workers = None if engine is None else OnWorkers(method)
    method = workers or method
    if grouper is not None and wanted.groups is not None:
        method = OnGroups(method, grouper, wanted.groups)
    limit = Budget.parse(wanted.budget)
    # Before the search: an interruption during what comes after it would lose the placement found.
    evaluator = evaluator or Simulator(problem)
    if evaluator.source == SIMULATED:  # measured steps keep to no model
        check_possible(problem)
    if controllers is not None:
        check_controllers(placer, evaluator.source)
    if workers is not None:
        check_workers(placer, evaluator.source)
    if init is not None:
        method.starts = (start_from(init, problem, seed, evaluator),)
    # Evaluators other than the simulator run steps without phases, and so does their answer.
    simulator = None if evaluator.source == SIMULATED else Simulator(problem, WITHOUT_PHASES)
    asked = wanted.record()
    if settings is not None:
        asked["settings"] = repr(settings)
    if workers is not None:  # however many: what they find does not depend on that
        asked["workers"] = True
    with contextlib.ExitStack() as stack:
        run = None
        if wanted.run_dir is not None:
            starts = method.starts
            config = {**asked, "init": [digest([start]) for start in starts], **_config(problem, limit, evaluator)}
            # Before the baselines, which may take minutes: a directory of another search is refused at once.
            run = stack.enter_context(RunDirectory(wanted.run_dir, config, resume=wanted.resume))
            if run.scale_s is not None:
                evaluator.scale_s = run.scale_s  # before anything is measured anew
            goes = limit.seconds is not None and accepts_starts and not run.has_checkpoint
            if run.best is not None and goes:
                run.keep_start(run.best.unit_device)
            if run.start is not None:  # what a policy has learned since is from there
                method.starts = (*starts, run.start)
        if workers is not None and engine is not None:
            crew = Crew(engine, evaluator, grouper, wanted.groups)
            workers.crew = stack.enter_context(contextlib.closing(crew))
        compared = baseline_costs(problem, seed, evaluator, names)
        bound_s = _bound_s(problem, evaluator)
        if workers is not None:
            workers.crew.ready()  # they have laid the problem out meanwhile
        search = Search(problem, limit, seed, progress, evaluator, run=run, logged=logged, controllers=controllers)
        chosen = search.run(method, placer)
    op_device = problem.expand(chosen)
    cost = _final_cost(search, chosen)
    if cost.failure is not None:
        reason = f"The best of {search.evaluations} placements tried failed: {cost.failure}."
        raise InfeasibleError(reason, [], _REMEDIES)
    if not cost.feasible:
        raise infeasible(problem, op_device, cost, search.evaluations)
    placement = placement_of(
        problem,
        chosen,
        cost,
        # A proof is of what was simulated; measured steps keep to no model.
        bound_s=max(bound_s, method.proven_s) if simulator is None else bound_s,
        placer=f"{placer}{f' on groups by {grouper}' if grouper else ''} ({search.budget})",
        seed=seed,
        baselines=compared,
        simulated=None if simulator is None else simulator(chosen),
        notes=(*hidden_notes(problem.graph, problem.costs), *method.notes, *_stopped(search)),
        options=evaluator.options if isinstance(evaluator.options, Options) else DEFAULT,
    )
    if not placement.cost.feasible:  # in no order that a program can keep to
        raise infeasible(problem, op_device, placement.cost, search.evaluations)
    return (
        decided(placement, wanted.compile, evaluator)
        if both_ways
        else dataclasses.replace(placement, compile=problem.compile)
    )


def placement_of(
    problem: Problem,
    unit_device: IntArray,
    cost: StepCost,
    *,
    bound_s: float,
    placer: str,
    seed: int,
    baselines: Mapping[str, StepCost],
    simulated: StepCost | None = None,
    notes: tuple[str, ...] = (),
    options: Options = DEFAULT,
) -> Placement:
    """The answer that [U] devices are, with all there is to say of it; see `Placement`.

    Simulated steps that are compiled or in slices are told with the best order that a program can keep to; see
    `best_order`.
    """
    op_device, order, phases = problem.expand(unit_device), FREE, None
    ordered = problem.graph.slices is not None or problem.compile == XLA
    if ordered and cost.source == SIMULATED and cost.objective == STEP_TIME:
        cost, order, phases = best_order(problem, op_device, options)
    return Placement(
        op_names=problem.graph.op_names,
        device_names=problem.topology.device_names,
        op_device=op_device,
        phases=phases,
        order=order,
        cost=cost,
        bound_s=bound_s,
        placer=placer,
        seed=seed,
        graph_fingerprint=problem.graph.fingerprint,
        topology_fingerprint=problem.topology.fingerprint,
        topology_name=problem.topology.name,
        baselines=baselines,
        versions=versions(),
        problem=problem,
        simulated=simulated,
        notes=notes,
        problem_fingerprint=problem.fingerprint,
    )


def was_interrupted(placement: Placement) -> bool:
    """Whether the search that found it was stopped by the user."""
    return any(note.startswith(_INTERRUPTED) for note in placement.notes)


def whole(what: str, number: int, least: int = 0) -> int:
    """A number as Python's own integer, which JSON knows.

    Raises:
      InputError: it is no whole number, or too small.
    """
    try:
        found = operator.index(number)
    except TypeError:
        raise InputError(f"{what} {number!r}", f"a whole number of at least {least}") from None
    if found < least:
        raise InputError(f"{what} {found}", f"a whole number of at least {least}")
    return found


def _config(problem: Problem, limit: Budget, evaluator: Evaluator) -> dict[str, Any]:
    """What a run is of, as plain data."""
    return {
        "problem": problem.fingerprint,
        "graph": problem.graph.name,
        "topology": problem.topology.name,
        "budget": str(limit),
        "evaluator": evaluator.source,
        "objective": evaluator.objective,
        "versions": versions(),
    } | ({} if evaluator.options in (None, DEFAULT) else {"options": repr(evaluator.options)})


def _bound_s(problem: Problem, evaluator: Evaluator) -> float:
    """The bound of what is predicted: the evaluator's own if that simulates, else that of the simulator beside it."""
    return evaluator.bound_s if evaluator.source == SIMULATED else lower_bound(problem).seconds


def _stopped(search: Search) -> tuple[str, ...]:
    """What there is to say of a search that was interrupted, or of an evaluator or controllers that could not go on."""
    if search.interrupted:
        done = f"{search.evaluations} evaluations, {search.seconds:.1f} seconds"
        return (f"{_INTERRUPTED} {done}, of a budget of {search.budget}; this is the best placement found",)
    if search.broken is None:
        return ()
    why = str(search.broken).rstrip(".")
    who = next((name for kind, name in _HELPERS.items() if isinstance(search.broken, kind)), "the evaluator")
    return (f"after {search.evaluations} evaluations {who} stopped ({why}); this is the best placement found",)


def _final_cost(search: Search, chosen: IntArray) -> StepCost:
    """What the chosen placement costs, evaluated anew: the best of many measurements is in part the luckiest.

    If that fails, or the user stops it, or the evaluator cannot go on, what the search saw of it counts.
    """
    evaluator = search.evaluator
    best, key = search.best, search.best_key
    seen = best is not None and key is not None and key[0] == 0 and np.array_equal(best, chosen)
    try:
        if search.broken is None or isinstance(search.broken, tuple(_HELPERS)) or not seen:
            cost = evaluator(chosen)
            if cost.failure is None or not seen:
                return cost
    except KeyboardInterrupt:
        if not seen:
            raise
    except CANNOT_GO_ON as error:
        if not seen:
            raise
        search.broken = error
    assert key is not None
    cost = bare(key[1], search.problem.memory_limit, evaluator.source)
    return dataclasses.replace(cost, objective=evaluator.objective)


def baseline_costs(
    problem: Problem, seed: int, evaluator: Evaluator, names: Sequence[str] | None = None
) -> Mapping[str, StepCost]:
    """Costs of every single device, op by op and compiled, and of placers, each with one pass of its own.

    Args:
      problem: what is placed.
      seed: of the placers' random choices.
      evaluator: tells the costs.
      names: of placers; by default `BASELINES`, and for a split step `OF_SLICES` and `MirroredStrategy`, if its steps
        are what the evaluator simulates.

    Raises:
      UnknownNameError: no such placer.
    """
    slices = problem.graph.slices
    usual = BASELINES if slices is None else (*OF_SLICES, *BASELINES)
    methods: dict[str, Placer] = {name: PLACERS[name]() for name in (usual if names is None else names)}
    costs: dict[str, StepCost] = {}
    for d, device in enumerate(problem.topology.device_names):
        alone = single_device(problem, d)
        if np.any(alone == d):
            costs |= both_ways(f"single {device}", evaluator, alone)
    own = COMPILED if evaluator.compile == XLA else ""
    for name, method in methods.items():
        costs[name + own] = cost_as_run(
            evaluator, quickly_placed(problem, method, seed, evaluator), quick=name not in OF_SLICES
        )
    if names is None and slices is not None and len(slices.sizes) > 1 and isinstance(evaluator, Simulator):
        costs[MIRRORED + own] = mirrored_cost(problem, evaluator.options)
    return costs
