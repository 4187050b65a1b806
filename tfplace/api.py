"""The few functions most users need. Each loads what it needs on its first call."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tfplace.core.compilation import AUTO as AUTO_COMPILE
from tfplace.core.compilation import NONE
from tfplace.core.engine import Engine
from tfplace.core.evaluator import Evaluator
from tfplace.core.graph import OpGraph
from tfplace.core.largest_batch import LargestBatch
from tfplace.core.placement import Placement
from tfplace.core.plan import Plan
from tfplace.core.problem import Problem
from tfplace.core.slices import AUTO, PER_SLICE, checked_slices
from tfplace.core.stepcost import MEASURED, SIMULATED, StepCost
from tfplace.core.topology import Topology
from tfplace.engines.sockets import worker_addresses
from tfplace.errors import InputError
from tfplace.option_fields import described
from tfplace.options import CompareOptions, PlanOptions, ProblemOptions, SearchOptions, SplitOptions
from tfplace.sources import examples_of, graph_of, made_to_fit, problem_of, resized_batch

if TYPE_CHECKING:
    from tfplace.comparison.comparison import Comparison
    from tfplace.execution.actual import ActualPlacement
    from tfplace.execution.placed import Placed
    from tfplace.report.progress import Stages
    from tfplace.report.step_memory import StepMemory


@described(SearchOptions)
def place(
    source: Any, topology: Topology | str | Path | None = None, *, batch: Any = None, **options: Any
) -> Placement:
    """Decides a device for every op.

    Args:
      source: an `OpGraph`, a `Problem`, a file of either (`.npz`), a workload of `dnn-partitioning` (`.json`), or
        anything `extract` takes (with `batch`). A problem and a workload have a topology, rules and costs of their own.
      topology: see `SearchOptions`.
      batch: as in `extract`; steps that are measured get its values.
      **options: those of `SearchOptions`.

    Returns:
      The placement, which fits every device's memory. Ctrl-C ends the search early with the best placement so far, and
      so does an evaluator that cannot go on, such as for workers that do not come back; `notes` say so. With a budget
      in evaluations the same seed gives the same placement; placers that learn with TensorFlow need as many cores for
      it.

    Raises:
      InfeasibleError: no placement fits; says which device is short by how much, and ways out.
      InputError: an option is wrong, two do not go together, or a problem has its own; before a model is read. Or most
        of the graph is inside functions that its ops keep, such as a loop over a `tf.data.Dataset`.
      ApplyError, ClusterError: the evaluator cannot tell what any placement costs.
      PlacementError: `init` is a placement for another graph or other devices.
      UnknownNameError: no such placer, grouper, evaluator, objective or option; lists the known ones.
      MissingExtraError: a package that the placer or TensorBoard needs is not installed; says how to install it.
    """
    asked = SearchOptions.of("tfplace.place", {"topology": topology, **options}).check()
    if asked.slices == AUTO:
        from tfplace.search.over_slices import place_over_slices

        return place_over_slices(
            lambda sizes: _asked_problem(source, batch, replace(asked, slices=sizes), some_slices=True),
            lambda problem, options: place_problem(problem, options, batch),
            asked,
        )
    problem = _asked_problem(source, batch, asked)
    return place_problem(problem, asked, batch)


def _asked_problem(source: Any, batch: Any, asked: ProblemOptions, *, some_slices: bool = False) -> Problem:
    """What checked options say is placed; see `problem_of`."""
    return problem_of(
        source,
        asked.topology,
        batch,
        asked.constraints,
        asked.max_memory,
        profile=asked.profile,
        compile=asked.compile,
        slices=checked_slices(asked.slices),
        batch_norm=asked.batch_norm,
        pack=asked.pack,
        some_slices=some_slices,
    )


def place_problem(problem: Problem, options: SearchOptions, batch: Any = None, *, both_ways: bool = True) -> Placement:
    """Places a problem; see `place`.

    Args:
      problem: what is placed.
      options: checked; of those that say what is placed the problem has its own.
      batch: what a step that is measured is given.
      both_ways: whether the answer is priced compiled and op by op.
    """
    from tfplace.report.progress import Stages
    from tfplace.report.tensorboard import Board
    from tfplace.search.place import search_placement

    progress = options.progress
    with contextlib.ExitStack() as opened:
        tell, logged = progress if callable(progress) else None, None
        if not callable(progress):
            stages = opened.enter_context(Stages(quiet=not progress, only_bar=True))
            stages.stage(f"placing {problem.graph.name}")
            tell = stages.search if progress else None
        if options.tensorboard is not None:
            board = opened.enter_context(Board(options.tensorboard))
            tell, logged = board.beside(tell), board.training
        judge, ours = _evaluator(options.evaluator, problem, options.objective, batch, options.compile)
        if ours:
            opened.callback(judge.close)
        wanted = options.given() | {"evaluator": judge, "progress": tell}
        return search_placement(problem, logged=logged, both_ways=both_ways, **wanted)


@described(PlanOptions)
def plan(source: Any, topology: Topology | str | Path | None = None, *, batch: Any = None, **options: Any) -> Plan:
    """What is fastest on some devices, and whether it fits: every way to run the step that makes sense there.

    The ways are one device, `tf.distribute.MirroredStrategy`, data parallelism, pipelines, and what a search finds for
    the whole step and for slices of its batch; each op by op and compiled. All steps are simulated. On more than 8
    accelerators in equal hosts the ways are equal replicas of these, see docs/concepts/large_boxes.md.

    Args:
      source: as in `place`; a model that can be traced, as its batch is split.
      topology: see `PlanOptions`.
      batch: as in `place`.
      **options: those of `PlanOptions`.

    Returns:
      The rows, fastest first, and the chosen one: `.summary()`, `.chosen`, `.placement`, `.save(directory)`.
      `.apply()` runs it.

    Raises:
      InputError: an option is wrong, or two do not go together.
      UnknownNameError: no such option.
      SourceError, ConstraintError: as of `place`.
    """
    from tfplace.search.planning import make_plan
    from tfplace.search.symmetric import large_box, limits_of, make_symmetric_plan
    from tfplace.search.what_if import TIMES

    def larger(sizes: tuple[int, ...] | None) -> Problem:
        more = resized_batch(source, batch, TIMES * examples_of(source, batch))
        return _asked_problem(source, more, replace(asked, slices=sizes), some_slices=True)

    asked = replace(PlanOptions.of("tfplace.plan", {"topology": topology, **options}), slices=AUTO).check()
    hosts = None if asked.topology is None else large_box(Topology.load(asked.topology))
    if hosts is not None and not isinstance(source, str | Path | OpGraph | Problem):
        from tfplace.transforms.split import slice_sizes

        def read(examples: int, slices: int) -> OpGraph:
            sizes, specs = slice_sizes(slices, examples), resized_batch(source, batch, examples)
            return graph_of(source, specs, slices=sizes, batch_norm=asked.batch_norm, pack=asked.pack)

        def pose(graph: OpGraph, devices: Topology) -> Problem:
            limits = limits_of(devices, hosts, asked.max_memory or {})
            return _asked_problem(graph, None, replace(asked, topology=devices, slices=None, max_memory=limits))

        return make_symmetric_plan(
            read,
            pose,
            functools.partial(place_problem, both_ways=False),
            asked.narrowed(SearchOptions),
            hosts,
            examples=examples_of(source, batch),
            exact=asked.exact,
        )
    return make_plan(
        lambda sizes: _asked_problem(source, batch, replace(asked, slices=sizes), some_slices=True),
        functools.partial(place_problem, both_ways=False),
        asked.narrowed(SearchOptions),
        made_to_fit,
        exact=asked.exact,
        larger=larger,
        read_packed=lambda sizes: _asked_problem(
            source, batch, replace(asked, slices=sizes, pack=True), some_slices=True
        ),
    )


@described(PlanOptions)
def largest_batch(
    source: Any, topology: Topology | str | Path | None = None, *, batch: Any, **options: Any
) -> LargestBatch:
    """How many examples a step can have on some devices: the largest batch for which a plan has a way that fits.

    Sizes are tried from the given one on, twice or half as large until one fits and the next does not, and then between
    these, up to a sixteenth. Each is planned with a tenth of the budget. Nothing is run, and no batch is made.

    Args:
      source: a model or a function, as `split` takes: its step is read for each size.
      topology: see `PlanOptions`.
      batch: of any size, as in `extract`; to begin with. Sizes are multiples of 8, 4 or 2 if its size is one.
      **options: those of `PlanOptions`.

    Returns:
      The size with its plan, and what all sizes came to. Ways with nearly all ops on the host do not count beside
      accelerators, nor do sizes whose examples take over twice as long each as the best. Ctrl-C ends it with the
      largest so far.

    Raises:
      InfeasibleError: not even one example fits; says how many bytes are missing where.
      InputError, UnknownNameError: as of `plan`.
      SplitError, SourceError: the source has one batch size, or cannot be read.
    """
    from tfplace.report.progress import Stages

    asked = PlanOptions.of("tfplace.largest_batch", {"topology": topology, **options})
    with Stages(quiet=not asked.progress) as stages:
        return find_largest_batch(source, batch, asked, stages)


def find_largest_batch(source: Any, batch: Any, options: PlanOptions, stages: Stages) -> LargestBatch:
    """See `largest_batch`.

    Args:
      source: see there.
      batch: see there.
      options: see there.
      stages: is told what goes on.
    """
    from tfplace.search.largest_batch import find_largest, part_of

    given = {**options.given(), "budget": part_of(options.budget), "progress": stages.search}

    def plan_of(examples: int) -> Plan:
        stages.stage(f"batch {examples}")
        return plan(source, batch=resized_batch(source, batch, examples), **given)

    return find_largest(plan_of, examples_of(source, batch), stages.note)


@described(CompareOptions)
def compare(
    source: Any, topology: Topology | str | Path | None = None, *, batch: Any = None, **options: Any
) -> Comparison:
    """Sets placers side by side on one model, each with the same budget; all step times, or loads, are simulated.

    The placers run one after the other, or side by side on an `engine`. `single`, `heft`, `random_search` and
    `local_search` (for throughput `load_search`) always do. With a grouper all placers place the same groups.

    Args:
      source: as in `place`.
      topology: see `CompareOptions`.
      batch: as in `place`.
      **options: those of `CompareOptions`.

    Returns:
      What each found: `.summary()`, `.save("page.html")`, `.best` for the best placement. Ctrl-C ends it early with
      what was run by then.

    Raises:
      InputError: an option is wrong, two do not go together, or the folder has a comparison of something else.
      UnknownNameError: no such placer, grouper, objective or option.
    """
    from tfplace.report.progress import Stages

    asked = CompareOptions.of("tfplace.compare", {"topology": topology, **options}).check()
    problem = _asked_problem(source, batch, asked)
    with Stages(quiet=not asked.progress, only_bar=True) as stages:
        return compare_problem(problem, asked, stages)


def compare_problem(problem: Problem, options: CompareOptions, stages: Stages) -> Comparison:
    """Compares placers on a problem; see `compare`.

    Args:
      problem: what is placed.
      options: checked; of those that say what is placed the problem has its own.
      stages: is told what goes on.
    """
    from tfplace.comparison.comparison import compare_placers
    from tfplace.search.grouped import merged

    if options.grouper is not None and options.groups is not None:
        problem = merged(problem, options.grouper, options.groups)
    return compare_placers(
        problem,
        options.placers,
        objective=options.objective,
        budget=options.budget,
        seeds=options.seeds,
        groups=0 if options.grouper is None else problem.num_units,
        folder=options.folder,
        engine=cast("Engine | None", options.engine),
        tell=stages.stage,
        progress=stages.search,
    )


def _evaluator(
    wanted: str | Evaluator | Callable[[Problem], Evaluator], problem: Problem, objective: str, batch: Any, compile: str
) -> tuple[Evaluator, bool]:
    """The evaluator meant, and whether it was made here and so has to be closed here."""
    from tfplace.registry import EVALUATORS, OBJECTIVES
    from tfplace.search.objective import check_objective

    if isinstance(wanted, str):
        check_objective(objective, wanted)
        if wanted == MEASURED:
            return EVALUATORS[wanted](problem, batch=batch, compile=compile), True
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


@described(SplitOptions)
def memory(
    source: Any,
    topology: Topology | str | Path | None = None,
    *,
    batch: Any = None,
    device: str | None = None,
    slices: int | Sequence[int] | None = None,
    batch_norm: str = PER_SLICE,
    pack: bool = False,
) -> StepMemory:
    """What a training step needs of one device's memory, and for what; simulated, nothing is searched or run.

    Args:
      source: as in `place`.
      topology: the devices, as in `formulate`.
      batch: as in `extract`.
      device: one of them, by name; by default the first accelerator, or the first device if there is none.
      slices: see `SplitOptions`.
      batch_norm: see `SplitOptions`.
      pack: see `SplitOptions`.

    Returns:
      The peak, what it consists of (weights, optimizer slots, activations, gradients, ...) and the ten largest tensors.

    Raises:
      SourceError, InputError: as `place`.
      UnknownNameError: no such device.
    """
    from tfplace.report.step_memory import step_memory

    problem = problem_of(source, topology, batch, None, None, slices=slices, batch_norm=batch_norm, pack=pack)
    return step_memory(problem, device)


def simulate(problem: Problem, devices: Placement | str | Path | Mapping[str, str]) -> StepCost:
    """The simulated cost of a step under given devices.

    Args:
      problem: from `formulate`.
      devices: a placement or a file of one, found on any box whose devices have these names; or op name -> device name
        for every op. A placement is simulated with its own phases, whatever their order is called, and cluster by
        cluster if the problem's costs are of a compiled step; devices alone, of a split step, in the best order.

    Raises:
      PlacementError: ops are missing, unknown, on a device they may not be on, or apart from others that they have to
        be with.
      UnknownNameError: no such device.
    """
    from tfplace.search.clustered import clustered_cost
    from tfplace.simulation.evaluate import simulate_devices
    from tfplace.simulation.options import WITHOUT_PHASES

    if not isinstance(problem, Problem):
        raise InputError(f"a {type(problem).__name__} to simulate", "a problem", "tfplace.formulate(graph, topology)")
    if not isinstance(devices, Mapping):
        if not isinstance(devices, Placement | str | Path):
            raise InputError(
                f"a {type(devices).__name__} of devices to simulate",
                "a placement, a file of one, or a dict of op name -> device name",
                "Of [U] devices of units: tfplace.simulation.evaluate.Simulator(problem)(units).",
            )
        placement = Placement.load(devices, graph=problem.graph)
        by_ops = simulate_devices(problem, placement.devices, WITHOUT_PHASES, phases=placement.phases)
        if problem.compile == NONE:
            return by_ops
        return clustered_cost(problem, placement.op_device, placement.phases, WITHOUT_PHASES)
    return simulate_devices(problem, devices)


def apply(
    source: Any,
    placement: Placement | str | Path,
    batch: Any = None,
    *,
    devices: Mapping[str, str] | None = None,
    compile: str = AUTO_COMPILE,
    cluster: str | Sequence[str] | None = None,
) -> Placed:
    """Makes the program run as placed.

    Args:
      source: an extracted `OpGraph` (nothing is traced again) or anything `extract` takes (with `batch`).
      placement: from `place`, or a file of one.
      batch: as in `extract`.
      devices: placement's device name -> TensorFlow device name on this machine; by default the same names.
      compile: "none" runs ops one by one, with the same numbers to the bit as the step itself without XLA; "xla"
        compiles the ops of each device in clusters; "auto" does as the placement says, which was found the faster way,
        or else compiles where the program asks for it with jit_compile.
      cluster: "host:port,host:port" of workers, started by `tfplace worker`, whose devices are taken in place of this
        process's: those named as the placement's, else in order.

    Returns:
      A callable that takes what the source's step takes and returns what it returns. Variables are moved to their
      devices; `.restore()` moves them back; `.replace(placement)` re-places without a new trace or import.

    Raises:
      ApplyError: this machine, or the cluster, lacks a device of the placement (lists what it has), or XLA, or the
        source cannot be run.
      ClusterError: an address is wrong, or a worker does not answer.
      InputError: no such `compile`.
      PlacementError: the placement is for another graph (says what differs), or no file of one.
    """
    from tfplace.execution.hosts import connect_hosts
    from tfplace.execution.placed import apply_placement
    from tfplace.execution.xla import warn_of_xla

    placement = Placement.load(placement)  # at once: reading a model takes longer
    hosts = None if cluster is None else connect_hosts(worker_addresses(cluster))
    graph = graph_of(source, batch)
    placement = Placement.load(placement, graph=graph)
    placed = apply_placement(graph, placement, devices=devices, compile=compile, hosts=hosts)
    warn_of_xla(graph)
    return placed


def actual_placement(placed: Placed) -> ActualPlacement:
    """Where TensorFlow really ran each op of a placed program, read back from its first call.

    Raises:
      ApplyError: the program has not run yet.
    """
    return placed.actual()
