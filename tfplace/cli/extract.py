"""`tfplace extract`: reads a model's graph once, and keeps it for planning without TensorFlow."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from tfplace.cli import source
from tfplace.cli.console import say
from tfplace.cli.flagset import asks_for_help, describe_flags, model_flags, model_params, output_file, read_flags
from tfplace.cli.quiet import load_tensorflow
from tfplace.errors import InputError
from tfplace.files import writing
from tfplace.formatting import format_bytes
from tfplace.io.archive import SUFFIX, is_archive
from tfplace.report.progress import Stages

NAME = "tfplace extract"
SUFFIXES = (SUFFIX, ".meta")


def extract_flags() -> flags.FlagValues:
    """A fresh set of flags, apart from absl's global ones."""
    fv = flags.FlagValues()
    text, switch = flags.DEFINE_string, flags.DEFINE_bool
    text("output", None, "The file to write: .npz for planning, or .meta, a MetaGraphDef.", flag_values=fv)
    model_flags(fv, inference="inference")
    switch("quiet", False, "No progress on stderr.", flag_values=fv)
    return fv


def extract_command(argv: Sequence[str]) -> None:
    """Runs `tfplace extract` with these flags.

    Raises:
      InputError: see the exit codes in docs/cli.md.
    """
    if asks_for_help(argv):
        say(describe_flags(f"{NAME} MODEL: reads a model's graph and writes it to a file.", extract_flags()))
        return
    fv = extract_flags()
    models = read_flags(NAME, fv, argv)
    if len(models) != 1:
        raise InputError(f"{NAME} with {len(models)} models", f"one, such as `{NAME} rnnlm_2 --output=rnnlm_2.npz`")
    output = _output(fv)
    params = model_params(fv)
    source.refuse_workload(models[0], NAME)
    build = source.find(models[0], fv.fetch)
    with Stages(fv.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        stages.stage("building the model")
        if not is_archive(models[0]):
            load_tensorflow(gpus=False)
        built = build(fv.batch, params)
        stages.stage("reading its graph")
        graph = source.read_graph(built, inference=fv.inference, fetches=fv.fetch, tell=stages.note)
        stages.stage("writing")
        with writing(output):
            graph.save(output)
    variables = format_bytes(sum(v.size_bytes for v in graph.variables))
    counts = f"{graph.num_ops:,} ops, {graph.num_tensors:,} tensors, {graph.num_edges:,} edges"
    say(f"{graph.name}: {counts}, {variables} of variables, fingerprint {graph.fingerprint}\n")
    say(f"{output} ({format_bytes(output.stat().st_size)})\n")


def _output(fv: flags.FlagValues) -> Path:
    output = output_file(fv, "graph.npz", "`tfplace place --model=graph.npz` places it.")
    if output.suffix not in SUFFIXES:
        raise InputError(f"--output={fv.output}", f"a file that ends in {' or '.join(SUFFIXES)}")
    return output
