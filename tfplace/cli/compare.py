"""`tfplace compare`: several placers on one model, side by side."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfplace.cli.checks import output_directory
from tfplace.cli.click_options import PLACING_CODES, command
from tfplace.cli.console import present
from tfplace.cli.flags import CompareFlags
from tfplace.cli.modules import find_placer
from tfplace.cli.problem import checked, read_problem
from tfplace.cli.quiet import load_tensorflow
from tfplace.errors import InfeasibleError, MissingExtraError
from tfplace.files import writing
from tfplace.formatting import format_bytes
from tfplace.options import CompareOptions
from tfplace.report.progress import Stages

if TYPE_CHECKING:
    from tfplace.comparison.comparison import Comparison

PAGE = "report.html"


@command(CompareFlags, codes=PLACING_CODES)
def compare_command(flags: CompareFlags) -> None:
    """Compares placers on a model, each with the same budget.

    Raises:
      InputError, InfeasibleError: see the exit codes in docs/reference/cli.md.
      KeyboardInterrupt: before anything was run, or before anything was found that fits.
    """
    flags.required_model()
    placers = [find_placer(name) for name in flags.placers or ()]
    flags = checked(flags)
    out = output_directory("out", None if flags.folder is None else str(flags.folder))
    comparison: Comparison | None = None
    files: dict[str, str] = {}
    try:
        with Stages(flags.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
            problem, _ = read_problem(flags, stages, gpus=flags.topology is None)
            if any(placer.needs_tensorflow for placer in placers):
                load_tensorflow(gpus=False)  # quietly, before a policy does
            from tfplace.api import compare_problem

            comparison = compare_problem(problem, flags.narrowed(CompareOptions, folder=out), stages)
            if out is not None:
                _write(comparison, out, stages, files)
    except KeyboardInterrupt as stop:
        if comparison is None:
            raise
        raise KeyboardInterrupt("interrupted after the placers were run, before the page was written") from stop
    finally:
        if comparison is not None:
            _show(flags, comparison, files)
    if comparison.best is None and not comparison.whole:
        raise KeyboardInterrupt
    if comparison.best is None:
        raise _infeasible(comparison)


def _infeasible(comparison: Comparison) -> InfeasibleError:
    """What to say when nothing fits, from how much each run is over."""
    case = comparison.results.facts.case
    over = [(run.over_bytes, name) for name, runs in comparison.results.runs.items() for run in runs if run.over_bytes]
    nearest = f" The nearest is {format_bytes(min(over)[0])} over in total, by {min(over)[1]}." if over else ""
    ways = [
        "`tfplace place` with the same flags shows which device lacks how much memory, and its largest tensors.",
        "Give the placers a larger budget, or try others: those that were run may have missed a placement.",
    ]
    return InfeasibleError(f"No placement of {case} that fits was found.{nearest}", [], ways)


def _show(flags: CompareFlags, comparison: Comparison, files: dict[str, str]) -> None:
    from tfplace.comparison.comparison_table import comparison_tables

    present(flags.json, comparison.to_dict, lambda: comparison_tables(comparison), files)


def _write(comparison: Comparison, out: Path, stages: Stages, files: dict[str, str]) -> None:
    """Writes the page; `files` gets what is where."""
    from tfplace.comparison.comparison import BEST, RUNS

    files |= {"runs": str(out / RUNS)} | ({} if comparison.best is None else {"placement": str(out / BEST)})
    stages.stage("writing")
    try:
        with writing(out / PAGE):
            comparison.save(out / PAGE)
    except MissingExtraError as error:
        stages.note(f"{PAGE} is not written: {error}")
        return
    files["report"] = str(out / PAGE)
