"""`tfplace extract`: reads a model's graph once, and keeps it for planning without TensorFlow."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tfplace.cli import source
from tfplace.cli.checks import output_file
from tfplace.cli.click_options import command
from tfplace.cli.console import say, show
from tfplace.cli.flags import ReadFlags
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.reading import read_graph
from tfplace.errors import InputError
from tfplace.files import writing
from tfplace.formatting import format_bytes
from tfplace.io.archive import SUFFIX
from tfplace.option_fields import option
from tfplace.report.progress import Stages
from tfplace.report.summary import layers_table
from tfplace.search.checks import checked_split

NAME = "tfplace extract"
SUFFIXES = (SUFFIX, ".meta")


@dataclass(frozen=True, kw_only=True)
class ExtractFlags(ReadFlags):
    """What is read, and where it goes."""

    title: ClassVar[str] = "Output"

    output: str | None = option(
        None, f"The file to write: {SUFFIX} for planning, or .meta, a MetaGraphDef", form="FILE"
    )
    layers: bool = option(False, "List the layers, which rules may name; --output may be left out then", kind=bool)
    quiet: bool = option(False, "No progress on stderr", kind=bool)


@command(ExtractFlags, words="MODEL")
def extract_command(flags: ExtractFlags, models: Sequence[str]) -> None:
    """Reads a model's graph once and writes it to a file, to place it without TensorFlow; or lists its layers.

    Raises:
      InputError: see the exit codes in docs/reference/cli.md.
    """
    if len(models) != 1:
        raise InputError(
            f"{NAME} with {len(models)} models", f"one model, such as `{NAME} rnnlm_2 --output=rnnlm_2.npz`"
        )
    output = None if flags.layers and flags.output is None else _output(flags)
    params = flags.param or {}
    source.refuse_workload(models[0], NAME)
    flags = checked_split(flags)
    source.refuse_slices(models[0], flags.slices)
    build = source.find(models[0], flags.shape)
    with Stages(flags.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        stages.stage("building the model")
        if not source.is_file(models[0]):
            load_tensorflow(gpus=False)
        built = build(flags.batch, params)
        stages.stage("reading its graph")
        graph = read_graph(built, flags, stages.note)
        if output is not None:
            stages.stage("writing")
            if output.suffix != SUFFIX:
                load_tensorflow(gpus=False)  # quietly, before the graph does
            with writing(output):
                graph.save(output)
    variables = format_bytes(sum(v.size_bytes for v in graph.variables))
    counts = f"{graph.num_ops:,} ops, {graph.num_tensors:,} tensors, {graph.num_edges:,} edges"
    say(f"{graph.name}: {counts}, {variables} of variables, fingerprint {graph.fingerprint}\n")
    if graph.slices is not None:
        say(f"{graph.slices}\n")
    if flags.layers:
        show(layers_table(graph))
    if output is not None:
        say(f"{output} ({format_bytes(output.stat().st_size)})\n")


def _output(flags: ExtractFlags) -> Path:
    output = output_file(flags.output, "graph.npz", "`tfplace place --model=graph.npz` places it.")
    if output.suffix not in SUFFIXES:
        raise InputError(f"--output={flags.output}", f"a file that ends in {' or '.join(SUFFIXES)}")
    return output
