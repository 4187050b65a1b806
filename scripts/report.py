"""One page of everything in some files of results, without anything from elsewhere.

    python scripts/report.py benchmarks/compare.jsonl --out=out/compare.html
    python scripts/report.py benchmarks/policies.jsonl --cases=inception --placers=single,heft,post --out=out/page.html

The files are those of scripts/compare.py. Results of one case in several files are shown together; files of other
budgets, or of other graphs of the same name, are refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare.page import comparison_page  # noqa: E402
from tfplace.compare.together import read_together  # noqa: E402
from tfplace.core.files import check_writable, write_whole, writing  # noqa: E402

_OUT = flags.DEFINE_string("out", None, "The page.", required=True)
_TITLE = flags.DEFINE_string("title", None, "Of the page; by default the names of the files.")
_CASES = flags.DEFINE_string("cases", "", "Only cases whose name has this in it, such as nmt or 'tight memory'.")
_PLACERS = flags.DEFINE_list("placers", [], "Only these.")


def main(argv: list[str]) -> None:
    """Reads the files, writes the page."""
    paths = [Path(name) for name in argv[1:]]
    if not paths:
        raise SystemExit("Which files? Such as: python scripts/report.py benchmarks/compare.jsonl --out=page.html")
    with script(stopped="Stopped; no page was written."):
        _report(paths)


def _report(paths: list[Path]) -> None:
    found = read_together(paths, cases=_CASES.value, placers=_PLACERS.value)
    if not found.rows:
        asked = f" of {_CASES.value!r}" if _CASES.value else ""
        asked += f" by {', '.join(_PLACERS.value)}" if _PLACERS.value else ""
        raise SystemExit(f"No results{asked} in {', '.join(map(str, paths))}.")
    out = Path(_OUT.value)
    check_writable(out)
    page = comparison_page(found.rows, _TITLE.value or ", ".join(path.name for path in paths), budget=found.budget)
    with writing(out):
        write_whole(out, page)
    print(out)


if __name__ == "__main__":
    app.run(main)
