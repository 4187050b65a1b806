"""One page of everything in some files of results, without anything from elsewhere.

    python scripts/report.py benchmarks/compare.jsonl --out=out/compare.html
    python scripts/report.py benchmarks/policies.jsonl --cases=inception --placers=single,heft,post --out=out/page.html

The files are those of scripts/compare.py. Results of one case in several files are shown together: files of other
budgets should not be mixed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.compare.cells import Case  # noqa: E402
from tfplace.compare.journal import Journal  # noqa: E402
from tfplace.compare.page import comparison_page  # noqa: E402
from tfplace.compare.standings import Standing, standings  # noqa: E402
from tfplace.core.files import write_whole, writing  # noqa: E402
from tfplace.errors import InputError, TfplaceError  # noqa: E402

_OUT = flags.DEFINE_string("out", None, "The page.", required=True)
_TITLE = flags.DEFINE_string("title", None, "Of the page; by default the names of the files.")
_CASES = flags.DEFINE_string("cases", "", "Only cases whose name has this in it, such as nmt or 'tight memory'.")
_PLACERS = flags.DEFINE_list("placers", [], "Only these.")


def main(argv: list[str]) -> None:
    """Reads the files, writes the page."""
    paths = [Path(name) for name in argv[1:]]
    if not paths:
        raise SystemExit("Which files? Such as: python scripts/report.py benchmarks/compare.jsonl --out=page.html")
    try:
        rows = read(paths)
    except (TfplaceError, OSError) as error:
        raise SystemExit(str(error)) from error
    if not rows:
        asked = f" of {_CASES.value!r}" if _CASES.value else ""
        asked += f" by {', '.join(_PLACERS.value)}" if _PLACERS.value else ""
        raise SystemExit(f"No results{asked} in {', '.join(map(str, paths))}.")
    title = _TITLE.value or ", ".join(path.name for path in paths)
    out = Path(_OUT.value)
    try:
        page = comparison_page(rows, title)
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            write_whole(out, page)
    except TfplaceError as error:  # such as matplotlib, which is missing
        raise SystemExit(str(error)) from error
    print(out)


def read(paths: Sequence[Path]) -> list[Standing]:
    """Standings of all files together, as far as they are asked for."""
    found: dict[Case, Standing] = {}
    for path in paths:
        for row in standings(Journal(path, header_of(path))):
            known = found.get(row.facts.case)
            found[row.facts.case] = Standing(row.facts, {**(known.runs if known else {}), **row.runs})
    rows = [row for row in found.values() if _CASES.value in str(row.facts.case)]
    if _PLACERS.value:
        rows = [Standing(r.facts, {n: runs for n, runs in r.runs.items() if n in _PLACERS.value}) for r in rows]
    return [row for row in rows if row.runs]


def header_of(path: Path) -> dict[str, Any]:
    """What the results of a file have in common.

    Raises:
      InputError: it is no file of results.
    """
    with path.open("rb") as file:
        first = file.readline()
    try:
        header: dict[str, Any] = json.loads(first)["header"]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}, which begins with {first[:40]!r}", "a file of scripts/compare.py") from error
    return header


if __name__ == "__main__":
    app.run(main)
