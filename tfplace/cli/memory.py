"""`tfplace memory`: what a step needs of one device's memory, without a search."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tfplace.cli import source
from tfplace.cli.click_options import command
from tfplace.cli.console import say
from tfplace.cli.flags import ReadFlags
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.reading import read_graph
from tfplace.core.problem import Problem
from tfplace.core.topology import Topology
from tfplace.errors import InputError, SourceError
from tfplace.io import archive
from tfplace.option_fields import option
from tfplace.report.progress import Stages
from tfplace.report.step_memory import step_memory
from tfplace.search.checks import checked_split

NAME = "tfplace memory"


@dataclass(frozen=True, kw_only=True)
class MemoryFlags(ReadFlags):
    """On which device, and what is printed."""

    title: ClassVar[str] = "Device"

    topology: str | None = option(
        None, "A preset of `tfplace topologies`, or a topology file", unset="the devices of this machine",
        form="NAME|FILE", page="reference/topology.md",
    )  # fmt: skip
    device: str | None = option(None, "Which of its devices", unset="its first accelerator", form="DEVICE")
    json: bool = option(False, "Print one JSON object instead of text", kind=bool)
    quiet: bool = option(False, "No progress on stderr", kind=bool)


@command(MemoryFlags, words="MODEL")
def memory_command(flags: MemoryFlags, models: Sequence[str]) -> None:
    """Tells what one step of a model needs of one device's memory, and for what.

    Raises:
      InputError: see the exit codes in docs/reference/cli.md.
    """
    if len(models) != 1:
        raise InputError(f"{NAME} with {len(models)} models", f"one model, such as `{NAME} gpt --topology=4xP100`")
    source.refuse_workload(models[0], NAME)
    flags = checked_split(flags)
    source.refuse_slices(models[0], flags.slices)
    topology = None if flags.topology is None else Topology.load(flags.topology)
    if topology is not None and flags.device is not None:
        topology.index(flags.device)
    build = source.find(models[0], flags.shape)
    with Stages(flags.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        found = step_memory(_problem(flags, build, models[0], topology, stages), flags.device)
    say(json.dumps(found.to_json(), indent=1) + "\n" if flags.json else found.summary())


def _problem(
    flags: MemoryFlags, build: source.Builder, model: str, topology: Topology | None, stages: Stages
) -> Problem:
    from tfplace.sources import formulate

    if archive.is_archive(model):
        kept = archive.load(model)
        if isinstance(kept, Problem):
            if topology is not None:
                raise SourceError(f"--topology with {model!r}", "none: the file holds a problem with its devices")
            return kept
    stages.stage("building the model")
    if topology is None or not source.is_file(model):
        load_tensorflow(gpus=topology is None)
    built = build(flags.batch, flags.param or {})
    stages.stage("reading its graph")
    graph = read_graph(built, flags, stages.note)
    stages.stage("simulating a step")
    return formulate(graph, topology)
