"""`tfplace place`: build, extract, search, report, write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Group

from tfplace.cli.checks import output_directory
from tfplace.cli.click_options import PLACING_CODES, command
from tfplace.cli.console import present
from tfplace.cli.evaluator import check_evaluator, open_evaluator
from tfplace.cli.flags import PlaceFlags
from tfplace.cli.modules import blaming, find_placer
from tfplace.cli.problem import ProblemReader, checked, read_problem
from tfplace.cli.quiet import load_tensorflow
from tfplace.core.placement import Placement
from tfplace.core.problem import Problem
from tfplace.core.slices import AUTO
from tfplace.core.stepcost import SIMULATED
from tfplace.core.timeline import Timeline
from tfplace.errors import TfplaceError
from tfplace.files import write_whole, writing
from tfplace.io.plan_files import PROBLEM
from tfplace.options import SearchOptions
from tfplace.registry import PLACERS
from tfplace.report.facts import placement_facts
from tfplace.report.layer_facts import layer_facts
from tfplace.report.progress import Stages
from tfplace.report.screen import placement_screen
from tfplace.report.search_trail import FILE as SEARCH
from tfplace.report.search_trail import SearchTrail, save_trail
from tfplace.report.summary import placed_layers, summary_tables

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tfplace.measurement.protocol.measured import MeasuredEvaluator
    from tfplace.search.progress import Progress


@dataclass
class _Result:
    """What there is to tell, also if something goes wrong after it was found.

    Attributes:
      placement: the answer, once there is one.
      files: what was written of it -> where.
      points: how the search went.
    """

    placement: Placement | None = None
    files: dict[str, str] = field(default_factory=dict)
    points: Sequence[Progress] = ()


@command(PlaceFlags, codes=PLACING_CODES)
def place_command(flags: PlaceFlags) -> None:
    """Finds a device for every op of a model.

    Raises:
      InputError, InfeasibleError: see the exit codes in docs/reference/cli.md.
      KeyboardInterrupt: before there was a placement; with a text that says so, after it was found.
    """
    with blaming(flags.placer):
        flags, out = _checked(flags)
    result = _Result()
    try:
        # Models print what they like while they are built; stdout is for the result.
        with Stages(flags.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
            gpus = flags.topology is None or flags.measures_here
            if flags.slices == AUTO:
                _search_slices(flags, stages, result, gpus=gpus)
                _save(result, out)
                if out is not None and result.placement is not None:
                    _write(stages, result, [], out)
            else:
                problem, batch = read_problem(flags, stages, gpus=gpus)
                _search(flags, stages, problem, result, batch=batch, out=out)
    except KeyboardInterrupt as stop:
        if result.placement is None:
            raise
        missing = "" if out is None else ", before all of its files were written"
        raise KeyboardInterrupt(f"interrupted after the placement was found{missing}") from stop
    finally:
        if result.placement is not None:
            found = result.placement
            present(
                flags.json,
                lambda: placement_facts(found),
                lambda: _tables(flags, found, result.files),
                result.files,
                listed=flags.verbose,
            )


def _tables(flags: PlaceFlags, placement: Placement, files: Mapping[str, str]) -> RenderableType:
    """What is printed: the first screen, or everything."""
    if flags.verbose:
        return summary_tables(placement, layers=flags.layers)
    rows = layer_facts(placement) if flags.layers else []
    screen = placement_screen(placement, files)
    return Group(screen, placed_layers(rows)) if rows else screen


def _checked(flags: PlaceFlags) -> tuple[PlaceFlags, Path | None]:
    """What flags can have wrong, said before the model is built; and the directory for files."""
    flags.required_model()
    find_placer(flags.placer)
    if isinstance(flags.init, str) and flags.init in PLACERS:
        find_placer(flags.init)
    flags = checked(flags)
    check_evaluator(flags, flags.known_topology)
    output_directory("run_dir", None if flags.run_dir is None else str(flags.run_dir))
    return flags, output_directory("out", flags.out)


def _search(
    flags: PlaceFlags, stages: Stages, problem: Problem, result: _Result, *, batch: Any, out: Path | None
) -> None:
    """Finds the placement, and writes it before anything else is done with it."""
    from tfplace.api import place_problem

    if flags.fine_tune or PLACERS[flags.placer].needs_tensorflow:
        load_tensorflow(gpus=flags.measures_here)  # quietly, before the policy does
    if flags.evaluator != SIMULATED:
        stages.stage(f"starting the {flags.evaluator} evaluator")
    with open_evaluator(flags, problem, batch) as judge:
        stages.stage("searching")
        trail = SearchTrail(stages.search)
        with blaming(flags.placer):
            wanted = flags.narrowed(SearchOptions, evaluator=judge, progress=trail)
            placement = result.placement = place_problem(problem, wanted)
        result.points = trail.points
        _save(result, out)
        traced = _measured(stages, cast("MeasuredEvaluator", judge), placement, out) if flags.measures else []
    if out is not None:
        _write(stages, result, traced, out)


def _search_slices(flags: PlaceFlags, stages: Stages, result: _Result, *, gpus: bool) -> None:
    """Finds the placement in as many slices as are best."""
    from tfplace.api import place_problem
    from tfplace.search.over_slices import Sizes, place_over_slices

    reader = ProblemReader(stages, gpus=gpus)

    def read(sizes: Sizes) -> Problem:
        stages.stage("the whole step" if sizes is None else f"slices {sizes}")
        problem, _ = reader.read(replace(flags, slices=sizes), some_slices=True)
        stages.stage("searching")
        return problem

    with blaming(flags.placer):
        wanted = flags.narrowed(SearchOptions, evaluator=SIMULATED, progress=stages.search)
        result.placement = place_over_slices(read, place_problem, wanted)


def _save(result: _Result, out: Path | None) -> None:
    if out is not None and result.placement is not None:
        with writing(out / "placement.json"):
            result.placement.save(out / "placement.json")
        result.files["placement"] = str(out / "placement.json")


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


def _write(stages: Stages, result: _Result, measured: Sequence[Timeline], out: Path) -> None:
    """Writes everything else there is to keep; `result.files` gets what is where."""
    from tfplace.report.page.directory import REPORT  # with numba, which --help can do without
    from tfplace.report.page.page import placement_page

    placement = result.placement
    assert placement is not None
    problem = placement.problem
    assert problem is not None  # placed here, so it is bound
    stages.stage("writing files and the report")

    def write(what: str, name: str, save: Callable[[Path], object]) -> None:
        with writing(out / name):
            save(out / name)
        result.files[what] = str(out / name)

    write("trace", "trace.json", lambda path: placement.timeline().save(str(path), *measured))
    write("topology", "topology.json", problem.topology.save)
    write("problem", PROBLEM, problem.save)
    if result.points:
        write("search", SEARCH, lambda path: save_trail(path, result.points))
    write("report", REPORT, lambda path: write_whole(path, placement_page(placement, result.points)))
    if problem.graph.origin is None:
        stages.note("placed.meta is not written: a graph loaded from a file has no TensorFlow form")
    else:
        load_tensorflow(gpus=False)  # quietly, before the graph does
        write("graph", "placed.meta", lambda path: problem.graph.save(path, devices=placement.devices))
