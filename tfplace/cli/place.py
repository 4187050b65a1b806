"""`tfplace place`: build, extract, search, report, write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from absl import flags

from tfplace.cli import options
from tfplace.cli.console import present, say
from tfplace.cli.evaluator import check_evaluator, open_evaluator
from tfplace.cli.flagset import asks_for_help, flag_value, output_directory, refuse_empty
from tfplace.cli.modules import blaming, find_placer
from tfplace.cli.problem import Asked, check_problem, read_problem
from tfplace.cli.quiet import load_tensorflow
from tfplace.core.engine import Controllers
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.stepcost import MEASURED, SIMULATED
from tfplace.core.timeline import Timeline
from tfplace.errors import InputError, TfplaceError
from tfplace.files import write_whole, writing
from tfplace.registry import PLACERS
from tfplace.report.facts import placement_facts
from tfplace.report.html import placement_page
from tfplace.report.progress import Stages
from tfplace.report.summary import summary_tables
from tfplace.report.tensorboard import load_writer
from tfplace.search.budget import Budget
from tfplace.search.capabilities import check_controllers, check_extra, check_init, check_pretrained, check_warm_start

if TYPE_CHECKING:
    from tfplace.measurement.protocol.measured import MeasuredEvaluator


@dataclass
class _Result:
    """What there is to tell, also if something goes wrong after it was found.

    Attributes:
      placement: the answer, once there is one.
      files: what was written of it -> where.
    """

    placement: Placement | None = None
    files: dict[str, str] = field(default_factory=dict)


def place_command(argv: Sequence[str]) -> None:
    """Runs `tfplace place` with these flags.

    Raises:
      InputError, InfeasibleError: see the exit codes in docs/cli.md.
      KeyboardInterrupt: before there was a placement; with a text that says so, after it was found.
    """
    if asks_for_help(argv):
        say(options.usage())
        return
    fv = options.parse(argv)
    with blaming(fv.placer):
        asked, out = _check(fv)
    result = _Result()
    try:
        # Models print what they like while they are built; stdout is for the result.
        with Stages(fv.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
            problem, batch = read_problem(fv, stages, asked, gpus=asked.topology is None or _measures_here(fv))
            _search(fv, stages, problem, result, batch=batch, out=out)
    except KeyboardInterrupt as stop:
        if result.placement is None:
            raise
        missing = "" if out is None else ", before all of its files were written"
        raise KeyboardInterrupt(f"interrupted after the placement was found{missing}") from stop
    finally:
        if result.placement is not None:
            found = result.placement
            present(fv, lambda: placement_facts(found), lambda: summary_tables(found), result.files)


def _check(fv: flags.FlagValues) -> tuple[Asked, Path | None]:
    """What flags can have wrong, said before the model is built; and the directory for files."""
    asked = check_problem(fv)
    refuse_empty(fv, "init", "tensorboard", "weights")
    flag_value("budget", fv.budget, Budget.parse)
    check_evaluator(fv, asked.topology)
    find_placer(fv.placer)
    check_extra(fv.placer)
    if fv.init:
        if fv.init in PLACERS:
            find_placer(fv.init)
            check_extra(fv.init)
        check_init(fv.init)
        check_warm_start(fv.placer)
    if fv.tensorboard:
        load_writer()
    if fv.weights is not None or fv.fine_tune is not None:
        check_pretrained(fv.placer, fv.weights, fv.fine_tune)
    if fv.controllers:
        check_controllers(fv.placer, fv.evaluator)
    elif fv.asynchronous:
        raise InputError("--asynchronous without --controllers", "both", "Such as --controllers=2 --asynchronous.")
    if not fv.resume and not fv.run_dir:
        raise InputError("--resume=false without --run_dir", "both", "Such as --run_dir=out/run --resume=false.")
    output_directory("run_dir", fv.run_dir)
    return asked, output_directory("out", fv.out)


def _search(
    fv: flags.FlagValues, stages: Stages, problem: Problem, result: _Result, *, batch: Any, out: Path | None
) -> None:
    """Finds the placement, and writes it before anything else is done with it."""
    from tfplace.api import place

    if fv.fine_tune or PLACERS[fv.placer].needs_tensorflow:
        load_tensorflow(gpus=_measures_here(fv))  # quietly, before the policy does
    if fv.evaluator != SIMULATED:
        stages.stage(f"starting the {fv.evaluator} evaluator")
    with open_evaluator(fv, problem, batch) as judge:
        stages.stage("searching")
        with blaming(fv.placer):
            placement = result.placement = place(
                problem,
                placer=fv.placer,
                budget=fv.budget,
                seed=fv.seed,
                progress=stages.search,
                evaluator=judge,
                grouper=fv.grouper or None,
                groups=fv.groups if fv.grouper else None,
                init=fv.init,
                run_dir=fv.run_dir,
                resume=fv.resume,
                controllers=_controllers(fv),
                weights=fv.weights,
                fine_tune=fv.fine_tune,
                tensorboard=fv.tensorboard,
            )
        if out is not None:
            with writing(out / "placement.json"):
                placement.save(out / "placement.json")
            result.files["placement"] = str(out / "placement.json")
        traced = _measured(stages, cast("MeasuredEvaluator", judge), placement, out) if _measures(fv) else []
    if out is not None:
        _write(stages, placement, traced, out, result.files)


def _controllers(fv: flags.FlagValues) -> Controllers | int:
    from tfplace.engines.process_workers import ProcessEngine

    return Controllers(ProcessEngine(fv.controllers), asynchronous=True) if fv.asynchronous else int(fv.controllers)


def _measures(fv: flags.FlagValues) -> bool:
    return bool(fv.evaluator == MEASURED)


def _measures_here(fv: flags.FlagValues) -> bool:
    """Whether steps run on the devices of this process, all of which it then has to see."""
    return _measures(fv) and not fv.workers and not fv.cluster


def _measured(stages: Stages, measured: MeasuredEvaluator, placement: Placement, out: Path | None) -> list[Timeline]:
    """Notes how good the measurements are; the timeline of one more step, if files are wanted and it runs."""
    problem = measured.problem
    try:
        if measured.taken:
            stages.note(f"measured: {measured.agreement}")
        if out is None:
            return []
        stages.stage("tracing a step")
        return [measured.timeline(problem.gather(placement.op_device))]
    except KeyboardInterrupt:
        stages.note("no step was traced: interrupted")
    except TfplaceError as error:
        stages.note(f"no step was traced: {error}")
    return []


def _write(
    stages: Stages, placement: Placement, measured: Sequence[Timeline], out: Path, files: dict[str, str]
) -> None:
    """Writes everything else there is to keep; `files` gets what is where."""
    problem = placement.problem
    assert problem is not None  # placed here, so it is bound
    stages.stage("writing")

    def write(what: str, name: str, save: Callable[[Path], object]) -> None:
        with writing(out / name):
            save(out / name)
        files[what] = str(out / name)

    write("trace", "trace.json", lambda path: placement.timeline().save(str(path), *measured))
    write("topology", "topology.json", problem.topology.save)
    write("report", "report.html", lambda path: write_whole(path, placement_page(placement)))
    if problem.graph.origin is None:
        stages.note("placed.meta is not written: a graph loaded from a file has no TensorFlow form")
    else:
        write("graph", "placed.meta", lambda path: problem.graph.save(path, devices=placement.devices))
