"""One page of everything in some files of results, without anything from elsewhere.

    python -m research.results_page research/data/compare.jsonl --out=out/compare.html
    python -m research.results_page research/data/policies.jsonl --cases=inception --placers=single,heft

The files are those of research/compare_placers.py. Results of one case in several files are shown together; files of
other budgets, or of other graphs of the same name, are refused.

    python -m research.results_page research/data/policies.jsonl --cases='rnnlm_2 on' --graphs=out/graphs

also shows the best placement of each case. Results have no devices, so the best run of each case is run again.
"""

from __future__ import annotations

import functools
from pathlib import Path

from absl import app, flags

from research.suites.merge_results import MergedResults, read_merged
from research.suites.rerun_best import rerun_best
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script
from tfplace.comparison.cells import Case
from tfplace.comparison.page import comparison_page
from tfplace.core.placement import Placement
from tfplace.files import check_writable, write_whole, writing
from tfplace.report.drawing import blank
from tfplace.report.progress import Stages

ROOT = Path(__file__).resolve().parent.parent

_OUT = flags.DEFINE_string("out", None, "The page.", required=True)
_TITLE = flags.DEFINE_string("title", None, "Of the page; by default the names of the files.")
_CASES = flags.DEFINE_string("cases", "", "Only cases whose name has this in it, such as nmt or 'tight memory'.")
_PLACERS = flags.DEFINE_list("placers", [], "Only these.")
_GRAPHS = flags.DEFINE_string(
    "graphs",
    None,
    "Directory of extracted graphs, as scripts/make_zoo.py and research/compare_placers.py keep them: the best "
    "placement of each case is found again, which takes as long as its run did, and shown.",
)


def main(argv: list[str]) -> None:
    """Reads the files, writes the page."""
    paths = [Path(name) for name in argv[1:]]
    if not paths:
        raise SystemExit(
            "Which files? Such as: python -m research.results_page research/data/compare.jsonl --out=page.html"
        )
    with script(stopped="Stopped; no page was written."):
        _report(paths)


def _report(paths: list[Path]) -> None:
    found = read_merged(paths, cases=_CASES.value, placers=_PLACERS.value)
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


def _best(found: MergedResults, graphs: Path) -> dict[Case, Placement | str]:
    blank(1.0)  # without matplotlib there is no page, which is better told before a search
    loads = functools.partial(load_tensorflow, gpus=False)
    with Stages(quiet=False) as stages:
        return rerun_best(found, graphs, loads=loads, stage=stages.stage, progress=stages.search)


if __name__ == "__main__":
    app.run(main)
