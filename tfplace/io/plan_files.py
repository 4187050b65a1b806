"""Plans as directories: "plan.json" with the rows, and a placement file for each row that has a placement.

"problem.npz" is what the placement of the row answers that reports show; a plan that was itself loaded has none.

Seconds that it took to find rows are in a file of their own, so that the others of two searches with one seed are the
same.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfplace.core.critical_path import Waiting
from tfplace.core.fidelity import ErrorBand
from tfplace.core.plan import STRATEGIES, Plan, PlanRow
from tfplace.core.stepcost import StepCost
from tfplace.errors import PlacementError
from tfplace.files import parse_json, write_whole, writing
from tfplace.io import archive, placement_file

FORMAT = "tfplace-plan/2"
_READ = (FORMAT, "tfplace-plan/1")
"""Formats that are read: the first had no errors, parts of the critical path, fingerprints and seconds."""

FILE = "plan.json"
SECONDS = "seconds.json"
PROBLEM = "problem.npz"


def save(plan: Plan, directory: str | Path) -> None:
    """See `Plan.save`.

    Raises:
      UnwrittenError: it cannot be written.
    """
    directory = Path(directory)
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, row in enumerate(plan.rows):
        file = None
        if row.placement is not None:
            file = f"placement{number}.json"
            with writing(directory / file):
                row.placement.save(directory / file)
        rows.append(
            {
                "way": row.way,
                "slices": list(row.slices),
                "compile": row.compile,
                "cost": row.cost.to_dict(),
                "same_numbers": row.same_numbers,
                "differs": row.differs,
                "obstacle": row.obstacle,
                "measured_s": row.measured_s,
                "recomputes": row.recomputes,
                "error": None if row.error is None else asdict(row.error),
                "waits": [asdict(one) for one in row.waits] if row is plan.chosen else None,
                "replicas": row.replicas,
                "on_part": row.on_part,
                "host": row.host,
                "placement": file,
            }
        )
    text = {
        "format": FORMAT,
        "model": plan.model,
        "graph_fingerprint": plan.graph_fingerprint,
        "topology": plan.topology_name,
        "topology_fingerprint": plan.topology_fingerprint,
        "examples": plan.examples,
        "exact": plan.exact,
        "notes": list(plan.notes),
        "rows": rows,
    }
    with writing(directory / FILE):
        write_whole(directory / FILE, json.dumps(text, indent=1) + "\n")
        write_whole(directory / SECONDS, json.dumps([row.found_s for row in plan.rows]) + "\n")
    shown = None if plan.shown is None else plan.shown.placement
    if shown is not None and shown.problem is not None:
        archive.save(shown.problem, directory / PROBLEM)


def load(directory: str | Path) -> Plan:
    """See `Plan.load`.

    Raises:
      PlacementError: no such directory, or not a plan.
    """
    path = Path(directory) / FILE
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
        if data["format"] not in _READ:
            raise PlacementError(f"format {data['format']!r}", f"format {FORMAT!r}")
        seconds = _seconds(path.parent / SECONDS, len(data["rows"]))
        return Plan(
            rows=tuple(_row(row, path.parent, took) for row, took in zip(data["rows"], seconds, strict=True)),
            model=str(data["model"]),
            topology_name=str(data["topology"]),
            examples=int(data["examples"]),
            exact=bool(data["exact"]),
            notes=tuple(map(str, data["notes"])),
            graph_fingerprint=str(data.get("graph_fingerprint", "")),
            topology_fingerprint=str(data.get("topology_fingerprint", "")),
        )
    except OSError as error:
        raise PlacementError(
            f"plan {str(directory)!r} ({error.strerror})",
            f"a directory with {FILE}",
            "Plan.save() and `tfplace plan --out` write such directories.",
        ) from error
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        if isinstance(error, PlacementError):
            raise
        raise PlacementError(
            f"{str(path)!r}, which is not a plan ({type(error).__name__}: {error})", f"JSON in format {FORMAT!r}"
        ) from error


def _seconds(path: Path, rows: int) -> list[float | None]:
    """Seconds that it took to find each row; None where nobody has written them down."""
    if not path.exists():
        return [None] * rows
    return [None if took is None else float(took) for took in parse_json(path.read_text(encoding="utf-8"))]


def _row(data: Any, directory: Path, found_s: float | None) -> PlanRow:
    way = str(data["way"])
    if data["placement"] is None and way not in STRATEGIES:
        needs_one = f"a placement for every row but {' and '.join(STRATEGIES)}"
        raise PlacementError(f"a plan whose row {way!r} has no placement", needs_one)
    return PlanRow(
        way=way,
        slices=tuple(map(int, data["slices"])),
        compile=str(data["compile"]),
        cost=StepCost.from_dict(data["cost"]),
        placement=None if data["placement"] is None else placement_file.load(directory / data["placement"]),
        same_numbers=bool(data["same_numbers"]),
        differs=str(data["differs"]),
        obstacle=str(data["obstacle"]),
        measured_s=None if data["measured_s"] is None else float(data["measured_s"]),
        recomputes=bool(data["recomputes"]),
        error=None if data.get("error") is None else ErrorBand(**data["error"]),
        found_s=found_s,
        known_waits=None if data.get("waits") is None else tuple(Waiting(**one) for one in data["waits"]),
        replicas=int(data.get("replicas", 1)),
        on_part=bool(data.get("on_part", False)),
        host=str(data.get("host", "")),
    )
