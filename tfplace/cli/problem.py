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
from tfplace.transforms.whole_step import WholeStep

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


def read_problem(flags: ProblemFlags, stages: Stages, *, gpus: bool) -> tuple[Problem, Any]:
    """As `ProblemReader.read`, once."""
    return ProblemReader(stages, gpus=gpus).read(flags)


class ProblemReader:
    """Reads the problem of a model, whole and in slices. The model is built once for each batch size.

    Args:
      stages: is told what goes on.
      gpus: whether TensorFlow is to see this machine's.
    """

    def __init__(self, stages: Stages, *, gpus: bool) -> None:
        self._stages, self._gpus = stages, gpus
        self._built: dict[int | None, source.Source] = {}
        self._unsplit: dict[int | None, WholeStep] = {}

    def read(self, flags: ProblemFlags, *, some_slices: bool = False) -> tuple[Problem, Any]:
        """The problem, of the model's graph or of a file, and the batch of a step, None if that is not known.

        Args:
          flags: checked; for each batch size of the same model.
          some_slices: as of `tfplace.sources.problem_of`.

        Raises:
          SourceError, InputError: what the flags name is no model, or is a problem that other flags would change.
        """
        read, batch = self._read(flags)
        topology, rules, limits = flags.known_topology, flags.constraints, flags.max_memory
        if isinstance(read, OpGraph):
            from tfplace.sources import problem_of

            self._stages.stage("estimating costs")
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
                self._stages.note(f"{_guessed(problem.topology)}; `tfplace calibrate --local` measures them")
            return problem, batch
        if not (topology is None and flags.profile is None and rules in (None, Constraints()) and not limits):
            raise InputError(
                f"flags that change the problem in {flags.model!r}",
                "no --topology, --profile or rules, which the file has already",
                _elsewhere(flags.required_model()),
            )
        return read, None

    def _read(self, flags: ProblemFlags) -> tuple[OpGraph | Problem, Any]:
        """The model's graph and batch; for a file of a problem, that problem."""
        model, built = flags.required_model(), self._build(flags)
        self._stages.stage("reading its graph")
        if archive.is_archive(model):
            return archive.load(model), None
        if is_workload(model):
            return load_workload(model), None
        graph = read_graph(built, flags, self._stages.note, self._unsplit.get(flags.batch))
        if flags.slices is None:
            self._unsplit[flags.batch] = WholeStep(graph)
        if graph.unknown:
            first = graph.unknown[0]
            self._stages.note(
                f"{len(graph.unknown)} tensors have unknown sizes, which are estimated; the first is of {first.op}: "
                f"{first.rule}"
            )
        return graph, built.batch

    def _build(self, flags: ProblemFlags) -> source.Source:
        if flags.batch not in self._built:
            model = flags.required_model()
            build = source.find(model, flags.shape)
            if (is_workload(model) or archive.is_archive(model)) and (flags.inference or flags.fetch):
                raise SourceError(
                    f"--inference or --fetch for {model!r}", "neither: the file holds one step's graph as it is"
                )
            if not source.is_file(model):
                self._stages.stage("building the model")
                load_tensorflow(gpus=self._gpus)
            self._built[flags.batch] = build(flags.batch, flags.param or {})
        return self._built[flags.batch]


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
