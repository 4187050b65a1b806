"""The few functions most users need. Each loads what it needs on its first call."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfplace.core.constraints import Constraints
from tfplace.core.engine import Controllers
from tfplace.core.evaluator import Evaluator
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import MEASURED, SIMULATED, STEP_TIME, StepCost
from tfplace.core.topology import Topology
from tfplace.errors import InputError
from tfplace.sources import graph_of, problem_of

if TYPE_CHECKING:
    from tfplace.comparison.comparison import Comparison
    from tfplace.cost.profile import Profile
    from tfplace.execution.actual import ActualPlacement
    from tfplace.execution.placed import Placed
    from tfplace.search.progress import Progress


def place(
    source: Any,
    topology: Topology | str | Path | None = None,
    *,
    batch: Any = None,
    placer: str = "auto",
    budget: str | float | int = "30s",
    seed: int = 0,
    constraints: Constraints | None = None,
    max_memory: Mapping[str, int | str] | None = None,
    profile: Profile | str | Path | None = None,
    baselines: Sequence[str] | None = None,
    progress: Callable[[Progress], None] | bool = True,
    evaluator: str | Evaluator | Callable[[Problem], Evaluator] = "simulated",
    objective: str = STEP_TIME,
    grouper: str | None = None,
    groups: int | None = None,
    init: Placement | str | Path | None = None,
    run_dir: str | Path | None = None,
    resume: bool = True,
    controllers: int | Controllers = 0,
    weights: str | Path | None = None,
    fine_tune: int | None = None,
    tensorboard: str | Path | None = None,
) -> Placement:
    """Decides a device for every op.

    Args:
      source: an `OpGraph`, a `Problem`, a file of either (`.npz`), a workload of `dnn-partitioning` (`.json`), or
        anything `extract` takes (with `batch`).
      topology: as in `formulate`; not beside a problem or a workload, which have theirs.
      batch: as in `extract`; steps that are measured get its values.
      placer: a registered placer's name, or "module:class" of one's own (docs/own_placer.md).
      budget: seconds ("30s", 30.0) or a number of simulated placements (an int or "500 evaluations").
      seed: random seed; with a budget in evaluations the same seed gives the same placement, of placers that learn with
        TensorFlow on as many cores.
      constraints: as in `formulate`.
      max_memory: as in `formulate`.
      profile: as in `formulate`.
      baselines: placers whose results are reported beside it and beside every single device; by default round_robin,
        expert and heft.
      progress: True shows a bar on a terminal or in a notebook, False shows nothing; a function is called as the search
        goes on, with the best so far.
      evaluator: who tells what a placement costs: "simulated", "grappler", "measured" (on this process's devices), a
        class or function that makes one for the problem, such as `lambda problem: MeasuredEvaluator(problem, cluster)`,
        or one for this very problem, which is left open. See docs/measuring.md.
      objective: what is made small: "step_time", or "throughput", the largest load of a device, which is the seconds
        between two samples of a full pipeline (docs/objectives.md). An evaluator that is given decides that itself.
      grouper: a registered grouper's name, whose groups the placer then places as a whole (docs/grouping.md); by
        default every unit by itself.
      groups: how many groups the grouper is asked for; by default 256.
      init: a placement to go on from, such as the present one: a `Placement`, a file of one, or the name of a placer
        that makes it ("heft"). The result is never worse, unless that does not suit the grouper's groups. For placers
        that search: auto, local_search, hill_climbing and so on.
      run_dir: a directory that keeps the search as it goes on (docs/runs.md). After whatever ended it, the same call
        goes on; with a budget in evaluations it ends with the same placement as if nothing had happened.
      resume: False refuses a `run_dir` in which a search was begun.
      controllers: how many processes train a policy together, each with a part of every update's gradient, or a
        `tfplace.core.engine.Controllers` for more choice (docs/policies.md); 0 for this process alone.
      weights: a file of scripts/train_policy.py, instead of what a policy that was trained beforehand comes with.
      fine_tune: how many updates such a policy learns on this graph after it has placed it (docs/pretrained.md).
      tensorboard: a directory for TensorBoard: the best step time, and what a policy says of its training.

    Returns:
      The placement, which fits every device's memory. Ctrl-C ends the search early with the best placement so far, and
      so does an evaluator that cannot go on, such as for workers that do not come back; `notes` say so.

    Raises:
      InfeasibleError: no placement fits; says which device is short by how much, and ways out.
      InputError: a topology, batch, rules or profile beside a problem that has its own, something else than an
        evaluator, an objective that the evaluator does not know, fewer than 1 group, a seed that is no number or below
        0, one name as `baselines`, `init` for a placer that goes on from nothing, controllers, weights or fine-tuning
        for one that has none, or a `run_dir` that is another search's or in use.
      ApplyError, ClusterError: the evaluator cannot tell what any placement costs.
      PlacementError: `init` is a placement for another graph or other devices.
      UnknownNameError: no such placer, grouper, evaluator or objective; lists the known ones.
      MissingExtraError: a package that the placer or TensorBoard needs is not installed; says how to install it.
    """
    from tfplace.report.progress import Stages
    from tfplace.report.tensorboard import Board
    from tfplace.search.place import search_placement

    together, groups = _controllers(controllers), _groups(grouper, groups)
    problem = problem_of(source, topology, batch, constraints, max_memory, profile=profile)
    with contextlib.ExitStack() as opened:
        tell, logged = progress if callable(progress) else None, None
        if not callable(progress):
            stages = opened.enter_context(Stages(quiet=not progress, only_bar=True))
            stages.stage(f"placing {problem.graph.name}")
            tell = stages.search if progress else None
        if tensorboard is not None:
            board = opened.enter_context(Board(tensorboard))
            tell, logged = board.beside(tell), board.training
        judge, ours = _evaluator(evaluator, problem, objective, batch)
        if ours:
            opened.callback(judge.close)
        return search_placement(
            problem,
            placer=placer,
            budget=budget,
            seed=seed,
            baselines=baselines,
            progress=tell,
            evaluator=judge,
            grouper=grouper,
            groups=groups,
            init=init,
            run_dir=run_dir,
            resume=resume,
            controllers=together,
            weights=weights,
            fine_tune=fine_tune,
            logged=logged,
        )


def compare(
    source: Any,
    topology: Topology | str | Path | None = None,
    *,
    batch: Any = None,
    placers: Sequence[str] | None = None,
    budget: str | float | int = "30s",
    seeds: int = 3,
    objective: str = STEP_TIME,
    constraints: Constraints | None = None,
    max_memory: Mapping[str, int | str] | None = None,
    profile: Profile | str | Path | None = None,
    grouper: str | None = None,
    groups: int | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
) -> Comparison:
    """Sets placers side by side on one model, each with the same budget; all step times, or loads, are simulated.

    The placers run one after the other. `single`, `heft`, `random_search` and `local_search` (for throughput
    `load_search`) always do.

    Args:
      source: as in `place`.
      topology: as in `place`.
      batch: as in `place`.
      placers: names, or "module:class" of one's own; by default what places well, and `annealing`.
      budget: of each run, as in `place`.
      seeds: runs of each placer that has random choices.
      objective: as in `place`.
      constraints: as in `place`.
      max_memory: as in `place`.
      profile: as in `place`.
      grouper: as in `place`; all placers place the same groups.
      groups: as in `place`.
      folder: keeps every run (`runs.jsonl`) and the best placement (`placement.json`); the same call goes on there.
      progress: whether to show a bar on a terminal or in a notebook.

    Returns:
      What each found: `.summary()`, `.save("page.html")`, `.best` for the best placement. Ctrl-C ends it early with
      what was run by then.

    Raises:
      InputError: fewer than 1 seed or group, or a folder with a comparison of something else.
      UnknownNameError: no such placer, grouper or objective.
    """
    from tfplace.comparison.comparison import compare_placers
    from tfplace.report.progress import Stages
    from tfplace.search.grouped import merged

    groups = _groups(grouper, groups)
    problem = problem_of(source, topology, batch, constraints, max_memory, profile=profile)
    if grouper is not None:
        problem = merged(problem, grouper, groups)
    with Stages(quiet=not progress, only_bar=True) as stages:
        return compare_placers(
            problem,
            placers,
            objective=objective,
            budget=budget,
            seeds=seeds,
            groups=0 if grouper is None else problem.num_units,
            folder=folder,
            tell=stages.stage,
            progress=stages.search,
        )


def _groups(grouper: str | None, groups: int | None) -> int:
    """How many groups a grouper is asked for."""
    from tfplace.registry import GROUPERS
    from tfplace.search.place import GROUPS

    if grouper is None and groups is not None:
        raise InputError(f"groups={groups!r} without a grouper", "a grouper", f"One of {', '.join(GROUPERS)}.")
    return GROUPS if groups is None else groups


def _evaluator(
    wanted: str | Evaluator | Callable[[Problem], Evaluator], problem: Problem, objective: str, batch: Any
) -> tuple[Evaluator, bool]:
    """The evaluator meant, and whether it was made here and so has to be closed here."""
    from tfplace.registry import EVALUATORS, OBJECTIVES
    from tfplace.search.objective import check_objective

    if isinstance(wanted, str):
        check_objective(objective, wanted)
        if wanted == MEASURED:
            return EVALUATORS[wanted](problem, batch=batch), True
        return (OBJECTIVES[objective] if wanted == SIMULATED else EVALUATORS[wanted])(problem), True
    made, ours = wanted, False
    # An evaluator can be called too, so not everything that can be called makes one.
    if isinstance(wanted, type | functools.partial) or inspect.isroutine(wanted):
        made, ours = wanted(problem), True
    if not isinstance(made, Evaluator):
        raise InputError(
            f"evaluator={wanted!r}" + (f", which gives {made!r}" if ours else ""),
            f"an evaluator, what makes one for a problem, or one of {', '.join(EVALUATORS)}",
            f"Leave it out for {SIMULATED!r}; derive one of your own from tfplace.core.evaluator.Evaluator.",
        )
    if made.problem is not problem:
        raise InputError(
            f"an evaluator of {made.problem!r}", f"one of {problem!r}", "Make the problem first: tfplace.formulate()."
        )
    return made, ours


def _controllers(wanted: int | Controllers) -> Controllers | None:
    if isinstance(wanted, Controllers):
        return wanted
    from tfplace.engines.process_workers import ProcessEngine

    try:
        count = operator.index(wanted)
    except TypeError:
        raise InputError(
            f"controllers={wanted!r}", "a number of processes, or tfplace.core.engine.Controllers"
        ) from None
    return Controllers(ProcessEngine(count)) if count else None


def simulate(problem: Problem, devices: Placement | str | Path | Mapping[str, str]) -> StepCost:
    """The simulated cost of a step under given devices.

    Args:
      problem: from `formulate`.
      devices: a placement or a file of one, found on any box whose devices have these names; or op name -> device name
        for every op.

    Raises:
      PlacementError: ops are missing, unknown, on a device they may not be on, or apart from others that they have to
        be with.
      UnknownNameError: no such device.
    """
    from tfplace.simulation.evaluate import simulate_devices

    if not isinstance(problem, Problem):
        raise InputError(f"a {type(problem).__name__} to simulate", "a problem", "tfplace.formulate(graph, topology)")
    if not isinstance(devices, Mapping):
        if not isinstance(devices, Placement | str | Path):
            raise InputError(
                f"a {type(devices).__name__} of devices to simulate",
                "a placement, a file of one, or a dict of op name -> device name",
                "Of [U] devices of units: tfplace.simulation.evaluate.Simulator(problem)(units).",
            )
        devices = Placement.load(devices, graph=problem.graph).devices
    return simulate_devices(problem, devices)


def apply(
    source: Any,
    placement: Placement | str | Path,
    batch: Any = None,
    *,
    devices: Mapping[str, str] | None = None,
) -> Placed:
    """Makes the program run as placed, op by op.

    Args:
      source: an extracted `OpGraph` (nothing is traced again) or anything `extract` takes (with `batch`).
      placement: from `place`, or a file of one.
      batch: as in `extract`.
      devices: placement's device name -> TensorFlow device name on this machine; by default the same names.

    Returns:
      A callable that takes what the source's step takes and returns what it returns. Variables are moved to their
      devices; `.restore()` moves them back; `.replace(placement)` re-places without a new trace or import.

    Raises:
      ApplyError: this machine lacks a device of the placement (lists what it has), or the source cannot be run.
      PlacementError: the placement is for another graph (says what differs), or no file of one.
    """
    from tfplace.execution.placed import apply_placement

    placement = Placement.load(placement)  # at once: reading a model takes longer
    graph = graph_of(source, batch)
    return apply_placement(graph, Placement.load(placement, graph=graph), devices=devices)


def actual_placement(placed: Placed) -> ActualPlacement:
    """Where TensorFlow really ran each op of a placed program, read back from its first call.

    Raises:
      ApplyError: the program has not run yet.
    """
    return placed.actual()
