"""A directory's report, from the files that `tfplace plan --out`, `tfplace place --out` and `Plan.save` write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tfplace.core.placement import Placement
from tfplace.core.plan import Plan
from tfplace.core.problem import Problem
from tfplace.errors import InputError, PlacementError
from tfplace.files import write_whole
from tfplace.io.plan_files import FILE as PLAN
from tfplace.io.plan_files import PROBLEM
from tfplace.report.page.page import placement_page, plan_page
from tfplace.report.search_trail import FILE as SEARCH
from tfplace.report.search_trail import load_trail

PLACEMENT, REPORT, RUNS = "placement.json", "report.html", "runs.jsonl"


def write_report(directory: Path) -> Path:
    """Writes report.html, and tells where.

    Raises:
      InputError: the directory has no plan or placement, or is that of a comparison; or a file in it is damaged.
      UnwrittenError: it cannot be written.
    """
    path = directory / REPORT
    write_whole(path, _page(directory))
    return path


def _page(directory: Path) -> str:
    if (directory / PLAN).exists():
        return plan_page(_bound_plan(Plan.load(directory), directory))
    if (directory / RUNS).exists():
        raise InputError(
            f"{str(directory)!r}, which `tfplace compare` wrote",
            "a directory of `tfplace plan --out` or `tfplace place --out`",
            "Run the same `tfplace compare` again: it rebuilds the report from the runs that it kept.",
        )
    if (directory / PLACEMENT).exists():
        placement = _bound(Placement.load(directory / PLACEMENT), directory)
        return placement_page(placement, load_trail(directory / SEARCH))
    missing = "" if directory.is_dir() else " (no such directory)"
    raise InputError(
        f"{str(directory)!r}{missing}", f"a directory with {PLAN} or {PLACEMENT}", "`tfplace plan --out` writes one."
    )


def _bound_plan(plan: Plan, directory: Path) -> Plan:
    """The plan with the problem of the row that reports show, if that is kept."""
    row = plan.shown
    if row is None or row.placement is None:
        return plan
    whole = replace(row, placement=_bound(row.placement, directory))
    return replace(plan, rows=tuple(whole if one is row else one for one in plan.rows))


def _bound(placement: Placement, directory: Path) -> Placement:
    """The placement with its problem; without it where the directory has none, or another one's."""
    path = directory / PROBLEM
    if not path.exists():
        return placement
    problem = Problem.load(path)
    try:
        return Placement.load(placement, problem=problem)
    except PlacementError:
        return placement
