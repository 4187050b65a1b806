"""What is placed where, and by what rules: the flags that say it, and the problem that comes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from absl import flags

from tfplace.cli import source
from tfplace.cli.flagset import flag_value, model_flags, model_params, once, pairs, refuse_empty
from tfplace.cli.quiet import load_tensorflow
from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.cost.profile import Profile
from tfplace.errors import InputError, SourceError
from tfplace.group.dnn_partitioning import is_workload, load_workload
from tfplace.io import archive
from tfplace.registry import GROUPERS
from tfplace.report.progress import Stages
from tfplace.search.grouped import check_grouper
from tfplace.units import parse_bytes

_TOPOLOGY = "A preset of `tfplace topologies`, or a topology file; by default this machine."


def problem_flags(fv: flags.FlagValues) -> None:
    """Defines them."""
    text, repeated = flags.DEFINE_string, flags.DEFINE_multi_string
    files = f"a SavedModel directory, a file ({', '.join(source.SUFFIXES)})"
    text("model", None, f"A model of the zoo, {files}, or module:function.", flag_values=fv)
    model_flags(fv, inference="place inference")
    text("topology", None, _TOPOLOGY, flag_values=fv)
    text("profile", None, "A file of `tfplace profile` with measured op times.", flag_values=fv)
    grouper = f"Whose groups are placed as a whole: {', '.join(GROUPERS)}; by default none."
    text("grouper", None, grouper, flag_values=fv)
    flags.DEFINE_integer("groups", 256, "How many groups the grouper is asked for.", flag_values=fv)
    repeated("pin", [], "PATTERN=DEVICE: ops that must be on a device. Repeatable.", flag_values=fv)
    repeated("forbid", [], "PATTERN=DEVICE,...: devices ops must not be on. Repeatable.", flag_values=fv)
    repeated("colocate", [], "PATTERN,PATTERN,...: ops that stay together. Repeatable.", flag_values=fv)
    repeated("max_memory", [], "DEVICE=SIZE, such as GPU:0=10GiB. Repeatable.", flag_values=fv)
    flags.DEFINE_float("headroom", 0.0, "Fraction of every device's memory to keep free.", flag_values=fv)


@dataclass(frozen=True)
class Asked:
    """What flags ask for, as far as it is known without the model.

    Attributes:
      rules: of the user.
      topology: None is the devices of this machine.
    """

    rules: Constraints
    topology: Topology | None


def check_problem(fv: flags.FlagValues) -> Asked:
    """Everything that flags, and the files of a topology and of op times, can have wrong without a model.

    Raises:
      InputError: no model, flags of the wrong form or that contradict each other, or files that are none or that do
        not go together.
    """
    if not fv.model:
        raise InputError("no --model", "--model=NAME, PATH or module:function", "See tfplace models for names.")
    refuse_empty(fv, "topology", "profile", "grouper")
    rules = constraints(fv)
    model_params(fv)
    topology = Topology.load(fv.topology) if fv.topology else None
    profile = Profile.load(fv.profile) if fv.profile else None
    if profile is not None and topology is not None:
        profile.check(topology)
    if fv.grouper:
        check_grouper(fv.grouper, fv.groups)
    elif fv["groups"].present:
        raise InputError(f"--groups={fv.groups} without --grouper", "a grouper", f"One of {', '.join(GROUPERS)}.")
    for name in (*rules.max_memory, *rules.pin.values(), *(d for ds in rules.forbid.values() for d in ds)):
        if topology is not None:
            topology.match(name)
    return Asked(rules, topology)


def constraints(fv: flags.FlagValues) -> Constraints:
    """The constraints the flags state.

    Raises:
      InputError: a flag that is not of the form PATTERN=DEVICE or the like, or two that contradict each other.
    """
    forbid: dict[str, list[str]] = {}
    for pattern, devices in pairs("forbid", fv.forbid, "PATTERN=DEVICE,..."):
        forbid.setdefault(pattern, []).extend(devices.split(","))
    limits = once("max_memory", pairs("max_memory", fv.max_memory, "DEVICE=SIZE"))
    for device, size in limits.items():
        flag_value(f"max_memory={device}", size, parse_bytes)
    return Constraints(
        pin=once("pin", pairs("pin", fv.pin, "PATTERN=DEVICE")),
        forbid=forbid,
        colocate=tuple(text.split(",") for text in fv.colocate),
        max_memory=limits,
        headroom=fv.headroom,
    )


def read_problem(fv: flags.FlagValues, stages: Stages, asked: Asked, *, gpus: bool) -> tuple[Problem, Any]:
    """The problem, of the model's graph or of a file, and the batch of a step, None if that is not known.

    Args:
      fv: the flags.
      stages: is told what goes on.
      asked: by `check_problem`.
      gpus: whether TensorFlow is to see this machine's.

    Raises:
      SourceError, InputError: what the flags name is no model, or is a problem that other flags would change.
    """
    read, batch = _read(fv, stages, gpus=gpus)
    if isinstance(read, OpGraph):
        from tfplace.sources import formulate

        stages.stage("estimating costs")
        if asked.topology is None:
            load_tensorflow(gpus=True)
        problem = formulate(read, asked.topology, constraints=asked.rules, profile=fv.profile)
        if asked.topology is None:
            stages.note(f"{_guessed(problem.topology)}; `tfplace calibrate --local` measures them")
        return problem, batch
    if asked.topology is not None or fv.profile or asked.rules != Constraints():
        raise InputError(
            f"flags that change the problem in {fv.model!r}",
            "none of --topology, --profile and the rules, which the file holds already",
            _elsewhere(fv.model),
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


def _read(fv: flags.FlagValues, stages: Stages, *, gpus: bool) -> tuple[OpGraph | Problem, Any]:
    """The model's graph and batch; for a file of a problem, that problem."""
    build = source.find(fv.model, fv.fetch)
    if (is_workload(fv.model) or archive.is_archive(fv.model)) and (fv.inference or fv.fetch):
        raise SourceError(
            f"--inference or --fetch for {fv.model!r}", "neither: the file holds one step's graph as it is"
        )
    if not archive.is_archive(fv.model) and not is_workload(fv.model):
        stages.stage("building the model")
        load_tensorflow(gpus=gpus)
    built = build(fv.batch, model_params(fv))
    stages.stage("reading its graph")
    if archive.is_archive(fv.model):
        return archive.load(fv.model), None
    if is_workload(fv.model):
        return load_workload(fv.model), None
    graph = source.read_graph(built, inference=fv.inference, fetches=fv.fetch, tell=stages.note)
    if graph.unknown:
        first = graph.unknown[0]
        stages.note(
            f"{len(graph.unknown)} tensors of unknown size are counted by rule, first of them that of {first.op}: "
            f"{first.rule}"
        )
    return graph, built.batch
