"""`tfplace profile`: measures how long models' ops take, and writes it to a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich import box
from rich.table import Table

from tfplace.cli import source
from tfplace.cli.checks import check_addresses, output_file, step_timeout_s
from tfplace.cli.click_options import command
from tfplace.cli.console import say, show
from tfplace.cli.flags import ReadFlags
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.reading import read_graph
from tfplace.core.graph import OpGraph
from tfplace.cost.profile import Profile
from tfplace.errors import InputError, SourceError, UnwrittenError
from tfplace.files import check_writable, writing
from tfplace.formatting import format_seconds
from tfplace.io.archive import is_archive
from tfplace.option_fields import option
from tfplace.report.progress import Stages
from tfplace.search.checks import checked_split

if TYPE_CHECKING:
    from tfplace.measurement.backends.backend import Backend
    from tfplace.measurement.calibration.profile import Outcome

NAME = "tfplace profile"


@dataclass(frozen=True, kw_only=True)
class ProfileFlags(ReadFlags):
    """What is measured, on which device, and where it goes."""

    title: ClassVar[str] = "Measuring"

    output: str | None = option(None, "The profile file to write", form="FILE")
    device_type: str = option(
        "CPU", "Which kind of device of this machine: CPU, GPU", choices=("CPU", "GPU"), form="TYPE"
    )
    cluster: str | None = option(None, "A worker to use instead", form="HOST:PORT")
    device_model: str | None = option(
        None, "What to call the device's product", unset="what the system says", form="NAME"
    )
    cache: str | None = option(None, "Where measurements are kept, or 'none'", unset="the user's cache", form="FILE")
    step_timeout: str = option("2min", "What a step may take", form="TIME")
    again: bool = option(False, "Measure also what the cache has, and keep that instead", kind=bool)
    compiled: bool = option(False, "Measure each step compiled by XLA, too, for --compile=xla", kind=bool)
    steps: int = option(10, "Traced steps that count", kind=int, form="NUMBER", least=1)
    quiet: bool = option(False, "No progress on stderr", kind=bool)


@command(ProfileFlags, words="MODEL...")
def profile_command(flags: ProfileFlags, models: Sequence[str]) -> None:
    """Measures how long models' ops take on one device, and writes it to a file.

    Raises:
      InputError: see the exit codes in docs/reference/cli.md.
    """
    if not models:
        raise InputError(f"{NAME} without a model", "models, such as `tfplace profile rnnlm_2 --output=profile.json`")
    output = output_file(flags.output, "profile.json", "The file is what `tfplace place --profile` reads.")
    step_timeout_s(flags.step_timeout)
    flags = checked_split(flags)
    for model in models:
        source.refuse_workload(model, NAME)
        source.refuse_slices(model, flags.slices)
        _refuse_archive(model)
        source.find(model, flags.shape)
    check_addresses("cluster", [flags.cluster] if flags.cluster else (), reached=True)
    with Stages(flags.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
        load_tensorflow(gpus=flags.device_type == "GPU")
        cache = _cache(flags)
        done = [_profile(flags, stages, model, cache) for model in models]
    profile = Profile()
    for _, outcome in done:
        profile = profile.updated(outcome.device)
    try:
        with writing(output):
            profile.save(output)
    finally:
        show(_table(done))
    say(f"profile    {flags.output}\n")


def _refuse_archive(model: str) -> None:
    if is_archive(model):
        raise SourceError(
            f"{model!r} for `{NAME}`",
            "a model or a TensorFlow graph: this file has no ops that run",
            "Profile the model it was read from.",
        )


def _cache(flags: ProfileFlags) -> Path | None:
    """Where measurements are kept, if anywhere; known to take a file before anything is measured."""
    from tfplace.measurement.calibration.profile import default_cache

    if flags.cache == "none":
        return None
    cache = Path(flags.cache or default_cache())
    try:
        check_writable(cache)
    except UnwrittenError as error:
        raise InputError(f"cache {error.received}", error.expected, "--cache=FILE, or --cache=none.") from error
    return cache


def _profile(flags: ProfileFlags, stages: Stages, model: str, cache: Path | None) -> tuple[OpGraph, Outcome]:
    from tfplace.measurement.calibration.profile import profile_graph

    stages.stage(f"building {model}")
    built = source.find(model, flags.shape)(flags.batch, flags.param or {})
    stages.stage("reading its graph")
    graph = read_graph(built, flags, stages.note)
    open_backend, device_model = _device(flags)
    outcome = profile_graph(
        graph,
        open_backend,
        device_model,
        device_type=flags.device_type,
        batch=built.batch,
        cache=cache,
        again=flags.again,
        compiled=flags.compiled,
        steps=flags.steps,
        timeout_s=step_timeout_s(flags.step_timeout),
        progress=stages.stage,
    )
    if outcome.unrun:
        stages.note(f"{model}: {outcome.unrun} ops did not run on their own: TensorFlow merged or skipped them")
    if outcome.miscounted:
        stages.note(f"{model}: {outcome.miscounted} ops ran more or less often than the graph says")
    if outcome.disturbed:
        stages.note(
            f"{model}: something else used the processor in {outcome.disturbed} of the measured steps, so their times "
            "are too long; use --again to measure again"
        )
    return graph, outcome


def _device(flags: ProfileFlags) -> tuple[Callable[[], Backend], str]:
    """What opens the device, and its model."""
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.backends.local import LocalDevices
    from tfplace.measurement.calibration.rates import core_model, gpu_model, worker_model

    if flags.cluster:
        return lambda: Cluster.connect([flags.cluster]), flags.device_model or worker_model(
            flags.cluster, flags.device_type
        )
    # one inter-op thread: ops that ran side by side would count one another's time
    if flags.device_type == "GPU":
        return lambda: LocalDevices(inter_op=1), flags.device_model or gpu_model(0)
    return lambda: Cluster.start(1, inter_op=1), flags.device_model or core_model()


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
