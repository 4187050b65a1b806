"""What is placed where, and by what rules: the flags that say it, and the problem that comes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from tfplace.cli import source
from tfplace.cli.flags import ProblemFlags
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.reading import read_graph
from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.errors import InputError, SourceError
from tfplace.group.dnn_partitioning import is_workload, load_workload
from tfplace.io import archive
from tfplace.report.progress import Stages

_Flags = TypeVar("_Flags", bound=ProblemFlags)


def checked(flags: _Flags) -> _Flags:
    """The same flags, with files read and the rules as constraints.

    Raises:
      InputError: no model, flags of the wrong form or that do not go together, or files that are none.
    """
    model = flags.required_model()
    flags = replace(flags, constraints=flags.rules).check()
    source.refuse_slices(model, flags.slices)
    return flags


def read_problem(flags: ProblemFlags, stages: Stages, *, gpus: bool, some_slices: bool = False) -> tuple[Problem, Any]:
    """The problem, of the model's graph or of a file, and the batch of a step, None if that is not known.

    Args:
      flags: checked.
      stages: is told what goes on.
      gpus: whether TensorFlow is to see this machine's.
      some_slices: as of `tfplace.sources.problem_of`.

    Raises:
      SourceError, InputError: what the flags name is no model, or is a problem that other flags would change.
    """
    read, batch = _read(flags, stages, gpus=gpus)
    topology, rules, limits = flags.known_topology, flags.constraints, flags.max_memory
    if isinstance(read, OpGraph):
        from tfplace.sources import problem_of

        stages.stage("estimating costs")
        if topology is None:
            load_tensorflow(gpus=True)
        problem = problem_of(
            read,
            topology,
            None,
            rules,
            limits,
            profile=flags.profile,
            compile=flags.compile,
            some_slices=some_slices,
        )
        if topology is None:
            stages.note(f"{_guessed(problem.topology)}; `tfplace calibrate --local` measures them")
        return problem, batch
    if not (topology is None and flags.profile is None and rules in (None, Constraints()) and not limits):
        raise InputError(
            f"flags that change the problem in {flags.model!r}",
            "no --topology, --profile or rules, which the file has already",
            _elsewhere(flags.required_model()),
        )
    return read, None


def _guessed(topology: Topology) -> str:
    """What the devices of this machine are taken to be."""
    text = f"devices of this machine, looked up and not measured: {topology.source}"
    if not topology.links:
        return text
    slowest = min(link.bandwidth for link in topology.links)
    return f"{text}; links guessed, at {slowest / 1e9:.3g} GB/s and more"


def _elsewhere(model: str) -> str:
    """How to place what a problem's file holds under other rules."""
    if is_workload(model):
        return "A workload's costs are those of its own devices: it cannot be placed on others."
    return "Save the graph alone to place it elsewhere: tfplace.OpGraph.load(path).save(other)."


def _read(flags: ProblemFlags, stages: Stages, *, gpus: bool) -> tuple[OpGraph | Problem, Any]:
    """The model's graph and batch; for a file of a problem, that problem."""
    model = flags.required_model()
    build = source.find(model, flags.shape)
    if (is_workload(model) or archive.is_archive(model)) and (flags.inference or flags.fetch):
        raise SourceError(f"--inference or --fetch for {model!r}", "neither: the file holds one step's graph as it is")
    if not source.is_file(model):
        stages.stage("building the model")
        load_tensorflow(gpus=gpus)
    built = build(flags.batch, flags.param or {})
    stages.stage("reading its graph")
    if archive.is_archive(model):
        return archive.load(model), None
    if is_workload(model):
        return load_workload(model), None
    graph = read_graph(built, flags, stages.note)
    if graph.unknown:
        first = graph.unknown[0]
        stages.note(
            f"{len(graph.unknown)} tensors have unknown sizes, which are estimated; the first is of {first.op}: "
            f"{first.rule}"
        )
    return graph, built.batch
