"""`tfplace compare`: several placers on one model, side by side."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from tfplace.cli.console import present, say
from tfplace.cli.flagset import (
    PLACING_CODES,
    asks_for_help,
    describe_flags,
    flag_value,
    output_directory,
    read_only_flags,
)
from tfplace.cli.modules import find_placer
from tfplace.cli.problem import check_problem, problem_flags, read_problem
from tfplace.cli.quiet import load_tensorflow
from tfplace.comparison.defaults import PLACERS_BY_DEFAULT
from tfplace.core.stepcost import SIMULATED, STEP_TIME
from tfplace.errors import InfeasibleError, MissingExtraError
from tfplace.files import writing
from tfplace.formatting import format_bytes
from tfplace.report.progress import Stages
from tfplace.search.budget import Budget
from tfplace.search.objective import check_objective

if TYPE_CHECKING:
    from tfplace.comparison.comparison import Comparison

NAME = "tfplace compare"
PAGE = "report.html"


def compare_flags() -> flags.FlagValues:
    """A fresh set of flags, apart from absl's global ones."""
    fv = flags.FlagValues()
    problem_flags(fv)
    by_default = "; for throughput ".join(map(", ".join, PLACERS_BY_DEFAULT.values()))
    flags.DEFINE_list("placers", [], f"Names; by default {by_default}.", flag_values=fv)
    flags.DEFINE_string("budget", "30s", "Of each run, such as 30s or '500 evaluations'.", flag_values=fv)
    flags.DEFINE_string("objective", STEP_TIME, "What is made small: step_time or throughput.", flag_values=fv)
    flags.DEFINE_integer("seeds", 3, "Runs of each placer with random choices.", 1, flag_values=fv)
    flags.DEFINE_string("out", None, "Directory for runs, to go on from, page and placement.", flag_values=fv)
    flags.DEFINE_bool("json", False, "Print one JSON object instead of a table.", flag_values=fv)
    flags.DEFINE_bool("quiet", False, "No progress and no notes on stderr.", flag_values=fv)
    return fv


def compare_command(argv: Sequence[str]) -> None:
    """Runs `tfplace compare` with these flags.

    Raises:
      InputError, InfeasibleError: see the exit codes in docs/cli.md.
      KeyboardInterrupt: before anything was run, or before anything was found that fits.
    """
    fv = compare_flags()
    if asks_for_help(argv):
        what = f"{NAME}: sets placers side by side on a model, each with the same budget."
        say(describe_flags(what, fv, PLACING_CODES))
        return
    read_only_flags(NAME, fv, argv)
    asked = check_problem(fv)
    flag_value("budget", fv.budget, Budget.parse)
    check_objective(fv.objective, SIMULATED)
    placers = [find_placer(name) for name in fv.placers]
    out = output_directory("out", fv.out)
    comparison: Comparison | None = None
    files: dict[str, str] = {}
    try:
        with Stages(fv.quiet) as stages, contextlib.redirect_stdout(sys.stderr):
            problem, _ = read_problem(fv, stages, asked, gpus=asked.topology is None)
            if any(placer.needs_tensorflow for placer in placers):
                load_tensorflow(gpus=False)  # quietly, before a policy does
            from tfplace.comparison.comparison import compare_placers
            from tfplace.search.grouped import merged

            if fv.grouper:
                problem = merged(problem, fv.grouper, fv.groups)
            comparison = compare_placers(
                problem,
                fv.placers or None,
                objective=fv.objective,
                budget=fv.budget,
                seeds=fv.seeds,
                groups=problem.num_units if fv.grouper else 0,
                folder=out,
                tell=stages.stage,
                progress=stages.search,
            )
            if out is not None:
                _write(comparison, out, stages, files)
    except KeyboardInterrupt as stop:
        if comparison is None:
            raise
        raise KeyboardInterrupt("interrupted after the placers were run, before the page was written") from stop
    finally:
        if comparison is not None:
            _show(fv, comparison, files)
    if comparison.best is None and not comparison.whole:
        raise KeyboardInterrupt
    if comparison.best is None:
        raise _infeasible(comparison)


def _infeasible(comparison: Comparison) -> InfeasibleError:
    """What to say when nothing fits, from how much each run is over."""
    case = comparison.results.facts.case
    over = [(run.over_bytes, name) for name, runs in comparison.results.runs.items() for run in runs if run.over_bytes]
    nearest = f" The nearest is {format_bytes(min(over)[0])} over in all, by {min(over)[1]}." if over else ""
    ways = [
        "`tfplace place` with the same flags says which device is short by how much, and because of which tensors.",
        "Give the placers a larger budget, or try others: those that were run may have missed a placement.",
    ]
    return InfeasibleError(f"No placement of {case} that fits was found.{nearest}", [], ways)


def _show(fv: flags.FlagValues, comparison: Comparison, files: dict[str, str]) -> None:
    from tfplace.comparison.comparison_table import comparison_tables

    present(fv, comparison.to_dict, lambda: comparison_tables(comparison), files)


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
