"""`tfplace profile`: measures how long models' ops take, and writes it to a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags
from rich import box
from rich.table import Table

from tfplace.cli import source
from tfplace.cli.console import say, show
from tfplace.cli.flagset import (
    asks_for_help,
    check_addresses,
    describe_flags,
    model_flags,
    model_params,
    output_file,
    read_flags,
    step_timeout_s,
)
from tfplace.cli.quiet import load_tensorflow
from tfplace.core.graph import OpGraph
from tfplace.cost.profile import Profile
from tfplace.errors import InputError, SourceError, UnwrittenError
from tfplace.files import check_writable, writing
from tfplace.formatting import format_seconds
from tfplace.io.archive import is_archive
from tfplace.report.progress import Stages

if TYPE_CHECKING:
    from tfplace.measurement.backends.backend import Backend
    from tfplace.measurement.calibration.profile import Outcome

NAME = "tfplace profile"


def profile_flags() -> flags.FlagValues:
    """A fresh set of flags, apart from absl's global ones."""
    fv = flags.FlagValues()
    text, switch = flags.DEFINE_string, flags.DEFINE_bool
    text("output", None, "The profile file to write.", flag_values=fv)
    model_flags(fv, own="the models' own", inference="profile inference")
    flags.DEFINE_enum("device_type", "CPU", ["CPU", "GPU"], "Which kind of device of this machine.", flag_values=fv)
    text("cluster", None, "host:port of a worker to use instead.", flag_values=fv)
    text("device_model", None, "What to call the device's product; by default what the system says.", flag_values=fv)
    text("cache", None, "Where measurements are kept, or 'none'; by default the user's cache.", flag_values=fv)
    text("step_timeout", "2min", "What a step may take.", flag_values=fv)
    switch("again", False, "Measure also what the cache has, and keep that instead.", flag_values=fv)
    flags.DEFINE_integer("steps", 10, "Traced steps that count.", lower_bound=1, flag_values=fv)
    switch("quiet", False, "No progress on stderr.", flag_values=fv)
    return fv


def profile_command(argv: Sequence[str]) -> None:
    """Runs `tfplace profile` with these flags.

    Raises:
      InputError: see the exit codes in docs/cli.md.
    """
    if asks_for_help(argv):
        say(describe_flags(f"{NAME} MODEL...: measures how long models' ops take on one device.", profile_flags()))
        return
    fv = profile_flags()
    models = read_flags(NAME, fv, argv)
    if not models:
        raise InputError(f"{NAME} without a model", "models, such as `tfplace profile rnnlm_2 --output=profile.json`")
    output = output_file(fv, "profile.json", "The file is what `tfplace place --profile` reads.")
    model_params(fv)
    step_timeout_s(fv.step_timeout)
    check_addresses("cluster", [fv.cluster] if fv.cluster else ())
    for model in models:
        source.refuse_workload(model, NAME)
        _refuse_archive(model)
        source.find(model)
    with Stages(fv.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        load_tensorflow(gpus=fv.device_type == "GPU")
        cache = _cache(fv)
        done = [_profile(fv, stages, model, cache) for model in models]
    profile = Profile()
    for _, outcome in done:
        profile = profile.updated(outcome.device)
    try:
        with writing(output):
            profile.save(output)
    finally:
        show(_table(done))
    say(f"profile    {fv.output}\n")


def _refuse_archive(model: str) -> None:
    if is_archive(model):
        raise SourceError(
            f"{model!r} for `{NAME}`",
            "a model or a TensorFlow graph: such a file has nothing that runs",
            "Profile the model it was read from.",
        )


def _cache(fv: flags.FlagValues) -> Path | None:
    """Where measurements are kept, if anywhere; known to take a file before anything is measured."""
    from tfplace.measurement.calibration.profile import default_cache

    if fv.cache == "none":
        return None
    cache = Path(fv.cache or default_cache())
    try:
        check_writable(cache)
    except UnwrittenError as error:
        raise InputError(f"cache {error.received}", error.expected, "--cache=FILE, or --cache=none.") from error
    return cache


def _profile(fv: flags.FlagValues, stages: Stages, model: str, cache: Path | None) -> tuple[OpGraph, Outcome]:
    from tfplace.measurement.calibration.profile import profile_graph

    stages.stage(f"building {model}")
    built = source.find(model, fv.fetch)(fv.batch, model_params(fv))
    stages.stage("reading its graph")
    graph = source.read_graph(built, inference=fv.inference, fetches=fv.fetch, tell=stages.note)
    open_backend, device_model = _device(fv)
    outcome = profile_graph(
        graph,
        open_backend,
        device_model,
        device_type=fv.device_type,
        batch=built.batch,
        cache=cache,
        again=fv.again,
        steps=fv.steps,
        timeout_s=step_timeout_s(fv.step_timeout),
        progress=stages.stage,
    )
    if outcome.unrun:
        stages.note(f"{model}: {outcome.unrun} ops did not run by themselves: merged into others, or not taken")
    if outcome.miscounted:
        stages.note(f"{model}: {outcome.miscounted} ops ran more or less often than the graph says")
    if outcome.disturbed:
        stages.note(
            f"{model}: something else used the processor in {outcome.disturbed} of the steps that count, so that times "
            "are too long; --again measures anew"
        )
    return graph, outcome


def _device(fv: flags.FlagValues) -> tuple[Callable[[], Backend], str]:
    """What opens the device, and its model."""
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.backends.local import LocalDevices
    from tfplace.measurement.calibration.rates import core_model, gpu_model, worker_model

    if fv.cluster:
        return lambda: Cluster.connect([fv.cluster]), fv.device_model or worker_model(fv.cluster, fv.device_type)
    # one inter-op thread: ops that ran side by side would count one another's time
    if fv.device_type == "GPU":
        return lambda: LocalDevices(inter_op=1), fv.device_model or gpu_model(0)
    return lambda: Cluster.start(1, inter_op=1), fv.device_model or core_model()


def _table(done: Sequence[tuple[OpGraph, Outcome]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("graph", "ops", "signatures", "measured now", "step", "in kernels", "executor", "costs / step"):
        table.add_column(heading, justify="left" if heading == "graph" else "right")
    for graph, outcome in done:
        table.add_row(*_row(graph, outcome))
    return table


def _row(graph: OpGraph, outcome: Outcome) -> list[str]:
    from tfplace.cost.profiled import step_ratio
    from tfplace.cost.signature import signatures

    kinds = len({s for v, s in enumerate(signatures(graph)) if not graph.replicable[v]})
    row = [graph.name, f"{graph.num_ops:,}", f"{kinds:,}", f"{outcome.new:,}" if outcome.ran else "0"]
    step = outcome.device.step(graph.fingerprint)
    if step is None:
        return [*row, "known", "", "", ""]
    ratio = step_ratio(graph, outcome.device)
    rest = max(0.0, step.step_s - step.empty_s - step.ops_s)
    return [*row, *map(format_seconds, (step.step_s, step.ops_s, rest)), f"{ratio:.3f}"]
