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
from tfplace.transforms.whole_step import WholeStep

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
      source: an `OpGraph`, a `Problem`, a file of either (`.npz`), a `dnn-partitioning` workload (`.json`), or anything
        that `extract` takes (with `batch`). A problem and a workload bring their own topology, rules and costs.
      topology: see `SearchOptions`.
      batch: as in `extract`. Measured steps get its values.
      **options: those of `SearchOptions`.

    Returns:
      The placement, which fits every device's memory. Ctrl-C ends the search early with the best placement so far. So
      does an evaluator that cannot continue, for example because its workers are gone; `notes` say so. With a budget in
      evaluations, the same seed gives the same placement. For placers that learn with TensorFlow, this holds on
      machines with the same number of cores.

    Raises:
      InfeasibleError: no placement fits. The error says which device lacks how many bytes, and what to do.
      InputError: an option is invalid, two options conflict, or the problem has its own; raised before the model is
        read. Or most of the graph is inside functions that its ops keep, such as a loop over a `tf.data.Dataset`.
      ApplyError, ClusterError: the evaluator cannot evaluate any placement.
      PlacementError: `init` is a placement for another graph or other devices.
      UnknownNameError: no such placer, grouper, evaluator, objective or option. The error lists the known ones.
      MissingExtraError: the placer or TensorBoard needs a package that is not installed. The error says how to
        install it.
    """
    asked = SearchOptions.of("tfplace.place", {"topology": topology, **options}).check()
    if asked.slices == AUTO:
        from tfplace.search.over_slices import place_over_slices

        return place_over_slices(
            _reader(source, batch, asked),
            lambda problem, options: place_problem(problem, options, batch),
            asked,
        )
    problem = _asked_problem(source, batch, asked)
    return place_problem(problem, asked, batch)


def _reader(source: Any, batch: Any, asked: ProblemOptions) -> Callable[..., Problem]:
    """What reads the problem in some slices, or packed; slices are of the whole step, if that was read before."""
    unsplit: WholeStep | None = None

    def read(sizes: int | tuple[int, ...] | None, *, pack: bool = asked.pack) -> Problem:
        nonlocal unsplit
        given = replace(asked, slices=sizes, pack=pack)
        problem = _asked_problem(source, batch, given, some_slices=True, unsplit=unsplit)
        unsplit = WholeStep(problem.graph) if sizes is None else unsplit
        return problem

    return read


def _asked_problem(
    source: Any, batch: Any, asked: ProblemOptions, *, some_slices: bool = False, unsplit: WholeStep | None = None
) -> Problem:
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
        unsplit=unsplit,
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
    """Finds the fastest way to run a training step on some devices, and whether it fits their memory.

    It compares one device, `tf.distribute.MirroredStrategy`, data parallelism, pipelines, and placements that a search
    finds for the whole step and for slices of its batch; each op by op and compiled. All steps are simulated. With more
    than 8 accelerators in equal hosts, it compares equal replicas of these; see docs/concepts/large_boxes.md.

    Args:
      source: as in `place`. To split the batch, tfplace must be able to trace it: a model, not a file.
      topology: see `PlanOptions`.
      batch: as in `place`.
      **options: those of `PlanOptions`.

    Returns:
      The plan: its rows, fastest first, and the chosen one. See `.summary()`, `.chosen`, `.placement` and
      `.save(directory)`; `.apply()` runs it.

    Raises:
      InputError: an option is invalid, or two options conflict.
      UnknownNameError: no such option.
      SourceError, ConstraintError: as for `place`.
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
    read_problem = _reader(source, batch, asked)
    return make_plan(
        read_problem,
        functools.partial(place_problem, both_ways=False),
        asked.narrowed(SearchOptions),
        made_to_fit,
        exact=asked.exact,
        larger=larger,
        read_packed=functools.partial(read_problem, pack=True),
    )


@described(PlanOptions)
def largest_batch(
    source: Any, topology: Topology | str | Path | None = None, *, batch: Any, **options: Any
) -> LargestBatch:
    """Finds the largest batch that fits on some devices, and the plan for it.

    It doubles or halves the given size until one fits and the next does not, then bisects to within a sixteenth. Each
    size is planned with a tenth of the budget. No step is run, and no batch is allocated.

    Args:
      source: a model or a function, as in `split`. tfplace reads its step for each size.
      topology: see `PlanOptions`.
      batch: the first batch to try, as in `extract`. If its size is a multiple of 8, 4 or 2, so are all sizes.
      **options: those of `PlanOptions`.

    Returns:
      The size with its plan, and the result for each size. On a machine with accelerators, ways that run nearly all ops
      on the host do not count. Neither do sizes that take over twice as long for each example as the best size. Ctrl-C
      ends the search with the largest size so far.

    Raises:
      InfeasibleError: not even one example fits. The error says which device lacks how many bytes.
      InputError, UnknownNameError: as for `plan`.
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
    """Compares placers on one model, each with the same budget. All step times, or loads, are simulated.

    The placers run one after the other, or in parallel on an `engine`. `single`, `heft`, `random_search` and
    `local_search` (for throughput, `load_search`) always run. With a grouper, all placers place the same groups.

    Args:
      source: as in `place`.
      topology: see `CompareOptions`.
      batch: as in `place`.
      **options: those of `CompareOptions`.

    Returns:
      The comparison: `.summary()`, `.save("page.html")`, and `.best` for the best placement. Ctrl-C ends it early with
      the runs that are finished.

    Raises:
      InputError: an option is invalid, two options conflict, or the folder holds another comparison.
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
            f"an evaluator, a function that makes one for a problem, or one of {', '.join(EVALUATORS)}",
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
    """Simulates how much of one device's memory a training step needs, and for what. Nothing is run.

    Args:
      source: as in `place`.
      topology: the devices, as in `formulate`.
      batch: as in `extract`.
      device: the name of a device. By default the first accelerator, or the first device if there is none.
      slices: see `SplitOptions`.
      batch_norm: see `SplitOptions`.
      pack: see `SplitOptions`.

    Returns:
      The peak, its parts (weights, optimizer slots, activations, gradients, ...) and the ten largest tensors.

    Raises:
      SourceError, InputError: as for `place`.
      UnknownNameError: no such device.
    """
    from tfplace.report.step_memory import step_memory

    problem = problem_of(source, topology, batch, None, None, slices=slices, batch_norm=batch_norm, pack=pack)
    return step_memory(problem, device)


def simulate(problem: Problem, devices: Placement | str | Path | Mapping[str, str]) -> StepCost:
    """Simulates a step with given devices for its ops.

    Args:
      problem: from `formulate`.
      devices: a placement or a file of one, made for any machine with these device names; or a dict of op name ->
        device name with every op. A placement is simulated with its own phases, and cluster by cluster if the problem
        has the costs of a compiled step. A dict, for a split step, is simulated in the best order.

    Raises:
      PlacementError: ops are missing or unknown, on a device that they may not use, or apart from ops that they must
        stay with.
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
                f"devices of type {type(devices).__name__} to simulate",
                "a placement, a placement file, or a dict: op name -> device name",
                "For devices of units, use tfplace.simulation.evaluate.Simulator(problem)(units).",
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
    """Makes a program that runs as placed.

    Args:
      source: an extracted `OpGraph`, which is not traced again, or anything that `extract` takes (with `batch`).
      placement: from `place`, or a file of one.
      batch: as in `extract`.
      devices: the placement's device name -> TensorFlow device name on this machine. By default the names are equal.
      compile: "none" runs the ops one by one; the numbers are bit for bit those of the step without XLA. "xla" compiles
        the ops of each device in clusters. "auto" runs the placement the way that was predicted to be faster; if the
        placement does not say, it compiles where the program asks for jit_compile.
      cluster: "host:port,host:port" of workers that `tfplace worker` started. Their devices replace those of this
        process: the ones with the placement's names, otherwise in order.

    Returns:
      A callable with the arguments and results of the source's step. It has moved the variables to their devices;
      `.restore()` moves them back, and `.replace(placement)` changes the placement without another trace.

    Raises:
      ApplyError: this machine, or the cluster, lacks a device of the placement (the error lists its devices), XLA is
        missing, or the source cannot be run.
      ClusterError: an address is invalid, or a worker does not answer.
      InputError: no such `compile`.
      PlacementError: the placement is for another graph (the error says what differs), or the file holds no placement.
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
