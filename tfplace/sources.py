"""From what users have, a model, a file, rules, to what placers work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tfplace.core.compilation import COMPILATIONS, NONE, XLA, wants_xla
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.slices import PER_SLICE, checked_slices
from tfplace.core.topology import Topology
from tfplace.errors import InputError, SourceError, SplitError
from tfplace.io.archive import is_archive, load
from tfplace.option_fields import described
from tfplace.options import SplitOptions
from tfplace.transforms.whole_step import WholeStep

if TYPE_CHECKING:
    from tfplace.cost.profile import Profile
    from tfplace.rematerialization.rematerialize import MaxMemory, Segments
    from tfplace.rematerialization.trial import Trial


@described(SplitOptions)
def extract(
    source: Any,
    batch: Any = None,
    *,
    slices: int | Sequence[int] | None = None,
    batch_axis: int | Mapping[int, int | None] = 0,
    batch_norm: str = PER_SLICE,
    pack: bool = False,
    training: bool | None = None,
    fetches: str | tuple[str, ...] | None = None,
    name: str | None = None,
) -> OpGraph:
    """Reads a model's whole dataflow graph. Nothing is run, and the model does not change.

    A Keras model that is not built yet is built, as by `fit`.

    Args:
      source: a compiled Keras 3 or tf_keras model, a `tf.function`, a `ConcreteFunction`, a SavedModel directory, or a
        MetaGraphDef or GraphDef file (`.meta`, `.pb`, `.pbtxt`). Also a file of `OpGraph.save` or `Problem.save`
        (`.npz`), whose graph is loaded as it is, without TensorFlow.
      batch: the input of one step, as arrays or `tf.TensorSpec`s: for Keras `(x, y)`, `(x, y, sample_weight)` or `x`;
        for a function, a tuple of its arguments. Required unless the source has concrete input shapes.
      slices: see `SplitOptions`.
      batch_axis: see `split`.
      batch_norm: see `SplitOptions`.
      pack: see `SplitOptions`.
      training: for Keras models, whether to read the training step (forward, loss, backward, optimizer, metrics) or
        inference. By default training if the model is compiled.
      fetches: for graph files, the name or names of the ops that the step must run. By default the file's `train_op`
        collection or signature, otherwise every op whose result no other op reads. For a SavedModel, the name of its
        signature; by default `serving_default`.
      name: the name of the graph. By default the model's name.

    Raises:
      SourceError: the source or the batch cannot be read as a graph. The error says why, and what to do.
      SplitError: the step cannot be split; see `split`.
    """
    wanted = checked_slices(slices)
    if wanted is not None:
        _refuse_whole(source)
        from tfplace.transforms.split import split_source

        return split_source(
            source,
            batch,
            wanted,
            batch_axis=batch_axis,
            batch_norm=batch_norm,
            pack=pack,
            training=training,
            name=name,
        )
    if is_archive(source):
        if not (batch is None and training is None and fetches is None):
            raise SourceError(
                f"a batch, training or fetches for {str(source)!r}", "none: the file holds one step's graph as it is"
            )
        graph = OpGraph.load(source)
        return graph if name is None else replace(graph, name=name)
    if isinstance(source, str | Path):
        from tfplace.extraction.file_source import read_file

        return read_file(
            Path(source), batch=batch, fetches=(fetches,) if isinstance(fetches, str) else fetches, name=name
        )
    from tfplace.extraction.sources import extract_source

    return extract_source(source, batch, training=training, fetches=fetches, name=name)


def split(
    source: Any,
    slices: int | Sequence[int],
    batch: Any = None,
    *,
    batch_axis: int | Mapping[int, int | None] = 0,
    batch_norm: str = PER_SLICE,
    pack: bool = False,
    training: bool | None = None,
    name: str | None = None,
) -> OpGraph:
    """Reads a step with its batch split: the graph has a copy of each per-example op for every slice.

    Weights are not copied. The gradients of the slices are summed before they are applied, so one step of the split
    graph does what one step of the whole graph does. Data parallelism, pipelines and their mixtures are placements of
    the split graph.

        graph = tfplace.split(model, 4, (x, y))
        placement = tfplace.place(graph, "4xP100")
        print(graph.slices)  # 4 slices of 8 examples: same numbers up to summation order

    Args:
      source: a compiled Keras 3 or tf_keras model, or a `tf.function`. tfplace traces it for another batch size too.
      slices: the number of slices, as equal as possible; 1 keeps the step whole. Or the examples of each slice, such as
        `[12, 12, 4, 4]`, which add up to the batch.
      batch: as in `extract`.
      batch_axis: the axis of the inputs that counts examples. Or a dict of input -> axis, with the index of an input in
        the flattened batch: inputs that are not listed have axis 0, and None gives every slice the whole input.
      batch_norm: "per_slice": layers that normalize over the batch take the statistics of each slice, as in data
        parallelism. "synchronized": they take those of the batch, so the slices wait for one another.
      pack: whether each slice sends gradients, averages and variables packed together, in buckets of 256 KiB. This is
        faster for compiled steps, and where a message costs much, such as between processes.
      training: as in `extract`.
      name: as in `extract`.

    Returns:
      The graph. `slices.verdict` says whether its numbers equal those of the unsplit step up to the order of sums.
      `slices.gathered` lists the ops that get all examples at once.

    Raises:
      SplitError: the source is a file, a graph or a `ConcreteFunction`, whose batch size is fixed; an input lacks the
        batch axis; there are too few examples; or another batch size gives another program.
      SourceError: the source or the batch cannot be read as a graph.
    """
    return extract(
        source,
        batch,
        slices=slices,
        batch_axis=batch_axis,
        batch_norm=batch_norm,
        pack=pack,
        training=training,
        name=name,
    )


@overload
def rematerialize(
    source: Placement, *, max_memory: MaxMemory | None = None, segments: Segments | None = None
) -> Placement: ...


@overload
def rematerialize(
    source: Any,
    batch: Any = None,
    *,
    max_memory: MaxMemory | None = None,
    segments: Segments | None = None,
    topology: Topology | str | Path | None = None,
    profile: Profile | str | Path | None = None,
) -> OpGraph: ...


def rematerialize(
    source: Any,
    batch: Any = None,
    *,
    max_memory: MaxMemory | None = None,
    segments: Segments | None = None,
    topology: Topology | str | Path | None = None,
    profile: Profile | str | Path | None = None,
) -> OpGraph | Placement:
    """Reduces the memory of a step: some results of the forward pass are computed again for the backward pass.

    Losses, gradients and updates stay the same bit for bit: random ops draw again with the same seeds, and statistics
    are updated once. tfplace keeps results that it cannot compute again equally: of ops that read or write variables,
    of random ops with their own state, and of loops and branches.

        graph = tfplace.rematerialize(model, (x, y), max_memory=0.5, topology="4xP100")
        placement = tfplace.place(graph, "4xP100")

    Args:
      source: a graph or anything that `extract` takes: its step is simulated on the first accelerator of the topology,
        or on its first device if there is none. Or a placement, with its own devices.
      batch: as in `extract`.
      max_memory: the limit of the simulated peak: a fraction of the present peak, such as 0.5; bytes or "10GiB"; or
        device -> bytes, as in `formulate`. Results that save the most bytes at the peak for each second go first.
      segments: instead of `max_memory`, the segments to compute again: a pattern of op names for each, as in
        `Constraints`, or a list of patterns, such as ["layer:block1", "layer:block2"]. Results that forward ops outside
        of the segment read are kept. Or "sqrt": the forward pass in sqrt(n) segments (Chen et al., 2016).
      topology: the devices, as in `formulate`. A placement has its own.
      profile: measured op times, as in `formulate`.

    Returns:
      The graph; for a placement, the same placement of the new graph, which is `placement.problem.graph`.

    Raises:
      InfeasibleError: no choice fits. The error says what the best one needs.
      InputError: neither or both of `max_memory` and `segments`, an invalid value, or a step that computes results
        again already.
      ConstraintError: a segment's pattern matches nothing.
      SourceError, TopologyError: as for `extract` and `formulate`.
    """
    from tfplace.rematerialization.rematerialize import of_placement, one_device, with_less_memory

    if isinstance(source, Placement):
        _nothing_beside_placement(batch=batch, topology=topology, profile=profile)
        trials = of_placement(source)
    else:
        trials = one_device(formulate(graph_of(source, batch), topology, profile=profile))
    trial = _with_program(with_less_memory(trials, segments, max_memory), trials.problem.graph)
    return _placed(source, trial) if isinstance(source, Placement) else trial.graph


def made_to_fit(placement: Placement, goes_on: Callable[[], bool] = lambda: True) -> Placement:
    """A placement of a step that fits, or exceeds memory least, as results of the forward pass are computed again.

    Args:
      placement: of a step in which nothing is computed again.
      goes_on: asked after each choice of results, whether to try another.

    Raises:
      InputError: the placement does not know its problem.
    """
    from tfplace.search.recomputing import fitting_trial, in_best_order

    assert placement.problem is not None
    return in_best_order(placement, _with_program(fitting_trial(placement, goes_on), placement.problem.graph))


def _with_program(trial: Trial, whole: OpGraph) -> Trial:
    """A trial whose graph can be run if the whole step's can."""
    if trial.graph is whole or whole.origin is None:
        return trial
    from tfplace.transforms.recomputed_program import with_program

    return replace(trial, graph=with_program(trial.graph, whole))


def _placed(placement: Placement, trial: Trial) -> Placement:
    """A placement, of the step of a trial."""
    from tfplace.rematerialization.rematerialize import placed_alike

    assert placement.problem is not None
    same = trial.graph is placement.problem.graph
    return placement if same else _ordered_as_run(placed_alike(placement, trial))


def _ordered_as_run(placement: Placement) -> Placement:
    """A placement, if it is of a compiled step, with its cost cluster by cluster, in the best order then."""
    from tfplace.search.ordered import best_order
    from tfplace.simulation.options import DEFAULT

    assert placement.problem is not None
    if placement.problem.compile == NONE:
        return placement
    cost, order, phases = best_order(placement.problem, placement.op_device, DEFAULT)
    return replace(placement, cost=cost, order=order, phases=phases)


def _nothing_beside_placement(**given: Any) -> None:
    """Refuses what a placement has already."""
    if beside := [name for name, value in given.items() if value is not None]:
        raise InputError(f"{' and '.join(beside)} with a placement", "none, as the placement has its own")


def _refuse_whole(source: Any) -> None:
    """Refuses to split what has one batch size.

    Raises:
      SplitError: it is a file or a graph.
    """
    if isinstance(source, str | Path):
        what = f"the file {str(source)!r}"
    elif isinstance(source, OpGraph):
        what = f"the graph {source.name!r}"
    else:
        return
    raise SplitError(
        f"slices of {what}, which has the sizes of one batch",
        "a Keras model or a tf.function, which can be traced for slices too",
        "Split where the model is: tfplace.extract(model, batch, slices=4).save(path) keeps the split graph.",
    )


def formulate(
    graph: OpGraph | str | Path,
    topology: Topology | str | Path | None = None,
    *,
    constraints: Constraints | None = None,
    max_memory: Mapping[str, int | str] | None = None,
    costs: CostTable | None = None,
    profile: Profile | str | Path | None = None,
    compile: str = NONE,
) -> Problem:
    """Makes a problem for placers of a graph, a topology, costs and your rules.

    Args:
      graph: from `extract`, or a file of one (".npz").
      topology: a `Topology`, a preset's name or a file. By default the devices of the running TensorFlow.
      constraints: ops to pin, forbid or colocate, by patterns of op names.
      max_memory: device -> bytes or "10GiB"; overrides `constraints.max_memory`.
      costs: seconds of the ops. By default from `profile`.
      profile: measured op times, or a file of `tfplace profile`. Ops that it does not know, and all ops without a
        profile, get estimates from the roofline of `tfplace.cost.analytic`.
      compile: "xla" for the costs of ops in a step that XLA compiles, where the ops of a kernel are placed together;
        "auto" for the same if the program asks for jit_compile.

    Raises:
      TopologyError, ConstraintError: an invalid file, or a rule that matches nothing.
      InputError: both costs and a profile, or both costs and "xla"; another `compile`; a profile of other devices;
        constraints or costs of another type; or a graph with most ops inside functions that its ops keep.
    """
    from tfplace.group.problem import formulate as formulate_problem

    if not isinstance(graph, OpGraph):
        graph = OpGraph.load(graph)
    topology = Topology.detect() if topology is None else Topology.load(topology)
    constraints = Constraints() if constraints is None else constraints
    if not isinstance(constraints, Constraints):
        raise InputError(f"constraints of type {type(constraints).__name__}", "tfplace.Constraints(pin=..., ...)")
    if max_memory is not None and not isinstance(max_memory, Mapping):
        raise InputError(f"max_memory={max_memory!r}", 'a dict such as {"GPU:0": "10GiB"}')
    if max_memory:
        constraints = replace(constraints, max_memory=_overridden(topology, constraints.max_memory, max_memory))
    if compile not in COMPILATIONS:
        raise InputError(f"compile={compile!r}", f"one of {', '.join(COMPILATIONS)}")
    if costs is not None and (profile is not None or compile == XLA):
        raise InputError(f"costs and {'a profile' if profile is not None else f'compile={XLA!r}'}", "one of the two")
    if costs is None:
        return _formulate_both(graph, topology, constraints, profile, compiled=wants_xla(compile, graph))
    if not isinstance(costs, CostTable):
        raise InputError(f"costs of type {type(costs).__name__}", "tfplace.core.costs.CostTable(compute_s, provenance)")
    return formulate_problem(graph, topology, costs, constraints)


def _formulate_both(
    graph: OpGraph,
    topology: Topology,
    constraints: Constraints,
    profile: Profile | str | Path | None,
    *,
    compiled: bool,
) -> Problem:
    """The problem of a step that XLA compiles, or that runs op by op, with what it costs the other way."""
    from tfplace.cost.analytic import analytic_costs
    from tfplace.cost.compiled import FusedStep, compiled_costs
    from tfplace.cost.profile import Profile
    from tfplace.cost.profiled import profiled_costs
    from tfplace.group.fused import fuse_units
    from tfplace.group.problem import formulate as formulate_problem

    measured = None if profile is None else Profile.load(profile)
    step = FusedStep(graph)
    plain = analytic_costs(graph, topology) if measured is None else profiled_costs(graph, topology, measured)
    fused = compiled_costs(step, topology, measured)
    problem = formulate_problem(graph, topology, fused if compiled else plain, constraints)
    if not compiled:
        return replace(problem, other_costs=fused)
    return replace(fuse_units(problem, step.groups), compile=XLA, other_costs=plain)


def _overridden(
    topology: Topology, limits: Mapping[str, int | str], by: Mapping[str, int | str]
) -> dict[str, int | str]:
    """Limits of devices, but of those that others name, whatever the pattern, what these say."""
    names = topology.device_names
    taken = {names[d] for pattern in by for d in topology.match(pattern)}
    out = dict(by)
    for pattern, size in limits.items():
        devices = [names[d] for d in topology.match(pattern)]
        left = [name for name in devices if name not in taken]
        out |= {pattern: size} if left == devices else dict.fromkeys(left, size)
    return out


def problem_of(
    source: Any,
    topology: Topology | str | Path | None,
    batch: Any,
    constraints: Constraints | None,
    max_memory: Mapping[str, int | str] | None,
    *,
    profile: Profile | str | Path | None = None,
    compile: str = NONE,
    slices: int | Sequence[int] | None = None,
    batch_norm: str = PER_SLICE,
    pack: bool = False,
    some_slices: bool = False,
    unsplit: WholeStep | None = None,
) -> Problem:
    """What is placed; see `tfplace.place`.

    With `some_slices` this is one of several numbers of slices that are tried, and rules may name slices that it lacks.
    For `unsplit`, see `tfplace.transforms.split.split_source`.
    """
    from tfplace.group.dnn_partitioning import is_workload, load_workload

    if checked_slices(slices) is not None:
        _refuse_whole(source)
    if is_archive(source) and batch is None:
        source = load(source)
    elif is_workload(source):
        source = load_workload(source)
    if isinstance(source, Problem):
        given = {"topology": topology, "batch": batch, "constraints": constraints, "max_memory": max_memory}
        _nothing_beside(**given, profile=profile, slices=checked_slices(slices))
        return source
    graph = graph_of(source, batch, slices=slices, batch_norm=batch_norm, pack=pack, unsplit=unsplit)
    if some_slices and constraints is not None:
        constraints = constraints.without_missing_slices(graph)
    return formulate(graph, topology, constraints=constraints, max_memory=max_memory, profile=profile, compile=compile)


def examples_of(source: Any, batch: Any) -> int:
    """Examples in a step's batch, along the first axis of its inputs.

    Raises:
      SplitError: the source is no model that can be traced, or nothing says how many there are.
      SourceError: it has no batch.
    """
    from tfplace.extraction.batch import as_specs
    from tfplace.extraction.sources import step_of
    from tfplace.transforms.batch_specs import batch_size

    return batch_size(as_specs(step_of(source, batch).arguments))


def resized_batch(source: Any, batch: Any, examples: int) -> Any:
    """The specs of a batch with so many examples.

    Raises:
      SplitError: as of `examples_of`, or an input has another first axis.
      SourceError: see there.
    """
    from tfplace.extraction.batch import as_specs
    from tfplace.extraction.sources import step_of
    from tfplace.transforms.batch_specs import batch_size, resized

    step = step_of(source, batch)
    specs = as_specs(step.arguments, float_dtype=step.float_dtype)
    return resized(specs, batch_size(specs), examples)


def graph_of(
    source: Any,
    batch: Any,
    *,
    slices: int | Sequence[int] | None = None,
    batch_norm: str = PER_SLICE,
    pack: bool = False,
    unsplit: WholeStep | None = None,
) -> OpGraph:
    """An extracted graph as it is, anything else read; for `unsplit`, see `tfplace.transforms.split.split_source`.

    Raises:
      InputError: a batch for a graph, whose sizes are those of the batch it was read with.
    """
    if not isinstance(source, OpGraph):
        wanted = checked_slices(slices)
        if wanted is None or unsplit is None:
            return extract(source, batch, slices=slices, batch_norm=batch_norm, pack=pack)
        from tfplace.transforms.split import split_source

        return split_source(source, batch, wanted, batch_norm=batch_norm, pack=pack, unsplit=unsplit)
    if batch is not None:
        raise InputError("a batch with a graph", "none, as the graph has the sizes of its own batch")
    return source


def _nothing_beside(**given: Any) -> None:
    """Refuses what would have no effect on a problem, which has its topology, sizes, costs and rules already."""
    if beside := [name for name, value in given.items() if value is not None]:
        raise InputError(
            f"{' and '.join(beside)} with a problem",
            f"none, as a problem has its {' and '.join(beside)} already",
            "Pass them to tfplace.formulate or tfplace.extract, and the resulting problem to tfplace.place.",
        )
