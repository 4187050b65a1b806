"""One page of everything in some files of results, without anything from elsewhere.

    python scripts/report.py benchmarks/compare.jsonl --out=out/compare.html
    python scripts/report.py benchmarks/policies.jsonl --cases=inception --placers=single,heft,post --out=out/page.html

The files are those of scripts/compare.py. Results of one case in several files are shown together; files of other
budgets, or of other graphs of the same name, are refused.

    python scripts/report.py benchmarks/policies.jsonl --cases='rnnlm_2 on' --graphs=out/graphs --out=out/page.html

also shows the best placement of each case. Results have no devices, so the best run of each case is run again.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare.cells import Case  # noqa: E402
from tfplace.compare.found_again import find_again  # noqa: E402
from tfplace.compare.page import comparison_page  # noqa: E402
from tfplace.compare.together import Together, read_together  # noqa: E402
from tfplace.core.files import check_writable, write_whole, writing  # noqa: E402
from tfplace.core.placement import Placement  # noqa: E402
from tfplace.report.drawing import blank  # noqa: E402
from tfplace.report.progress import Stages  # noqa: E402

_OUT = flags.DEFINE_string("out", None, "The page.", required=True)
_TITLE = flags.DEFINE_string("title", None, "Of the page; by default the names of the files.")
_CASES = flags.DEFINE_string("cases", "", "Only cases whose name has this in it, such as nmt or 'tight memory'.")
_PLACERS = flags.DEFINE_list("placers", [], "Only these.")
_GRAPHS = flags.DEFINE_string(
    "graphs",
    None,
    "Directory of extracted graphs, as scripts/make_zoo.py and scripts/compare.py keep them: the best placement of "
    "each case is found again, which takes as long as its run did, and shown.",
)


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
    best = _best(found, Path(_GRAPHS.value)) if _GRAPHS.value is not None else {}
    title = _TITLE.value or ", ".join(path.name for path in paths)
    page = comparison_page(found.rows, title, best, budget=found.budget)
    with writing(out):
        write_whole(out, page)
    print(out)


def _best(found: Together, graphs: Path) -> dict[Case, Placement | str]:
    blank(1.0)  # without matplotlib there is no page, which is better told before a search
    loads = functools.partial(load_tensorflow, gpus=False)
    with Stages(quiet=False) as stages:
        return find_again(found, graphs, loads=loads, stage=stages.stage, progress=stages.search)


if __name__ == "__main__":
    app.run(main)
