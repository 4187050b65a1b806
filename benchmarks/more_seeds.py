"""Further seeds where `auto` is behind another placer in `compare.jsonl`: whether it is, or three seeds are too few.

    python benchmarks/more_seeds.py --graphs=out/graphs            # an hour and a quarter on two processors
    python benchmarks/more_seeds.py --page=docs/comparison.md      # puts the table of what there is there

adds what is missing to more_seeds.jsonl: in each such case five seeds that the comparison has not, of `auto` and of
every placer whose median is lower there, with the same minute. As the cases were chosen for what the first seeds found,
only these are counted. Graphs are those of `python scripts/make_zoo.py`; steps are simulated.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare import suites  # noqa: E402
from tfplace.compare.tables import Page, table  # noqa: E402

SEEDS = range(suites.FULL.seeds, suites.FULL.seeds + 5)

_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Where extracted graphs are kept.")
_OUT = flags.DEFINE_string("out", str(ROOT / "benchmarks" / "more_seeds.jsonl"), "The results.")
_JOBS = flags.DEFINE_integer("jobs", 2, "Cells at a time.", 1)
_PAGE = flags.DEFINE_string("page", None, "A page whose table is rewritten; nothing is run.")


def main(argv: list[str]) -> None:
    with script(argv):
        _page() if _PAGE.value else _run()


def first():
    """The comparison, and (case, other placer) wherever that one's median is lower than that of `auto`."""
    from tfplace.compare.standings import goals, standings

    journal = _journal(ROOT / suites.FULL.out)
    rows = standings(journal)
    return {row.facts.case: row for row in rows}, [(case, other) for case, other, _ in goals(rows).beaten]


def _journal(path):
    from tfplace.compare.journal import Journal
    from tfplace.search.budget import Budget

    return Journal(path, {"budget": str(Budget.parse(suites.FULL.budget)), "simulated": True})


def _run():
    from tfplace.compare.running import run_all, tasks
    from tfplace.report.progress import Stages
    from tfplace.search.budget import Budget

    journal, (_, beaten) = _journal(Path(_OUT.value)), first()
    budget, graphs = Budget.parse(suites.FULL.budget), Path(_GRAPHS.value)
    todo = []
    for case in dict.fromkeys(case for case, _ in beaten):
        names = ["auto", *(other for where, other in beaten if where == case)]
        runs = [(name, seed) for seed in SEEDS for name in names]
        todo += tasks([(graphs / f"{case.graph}.npz", case)], runs, budget, journal)
    todo.sort(key=lambda task: task.seed)  # everything once before anything twice
    with Stages(quiet=False) as stages:
        stages.stage(f"{len(todo)} cells of {budget}")
        failed = run_all(todo, journal, jobs=_JOBS.value, progress=stages.part, prepare=_load)
    for task, error in failed:
        print(f"{task}: {error!r}", file=sys.stderr)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, see above; the same command runs them again.")
    print(text())


def _load():
    load_tensorflow(gpus=False)


def _page():
    Page(_PAGE.value, "more-seeds").write(text())


def text():
    """The table."""
    head = ("graph", "devices", "another placer", "auto over it, first seeds", "further seeds", "auto ahead in")
    return table(head, list(map(_line, compared())))


def compared():
    """(case, other placer, auto's median over its by the first seeds, further steps of auto, and of the other)."""
    from tfplace.compare.standings import standings

    rows, beaten = first()
    more = {row.facts.case: row for row in standings(_journal(Path(_OUT.value)))}
    for case, other in beaten:
        found = [more[case].found_s(name) if case in more else [] for name in ("auto", other)]
        if any(len(steps) < len(SEEDS) for steps in found):
            raise SystemExit(
                f"{case}: not all seeds of auto and {other} are in {_OUT.value}; run them, without --page."
            )
        yield case, other, rows[case].median_s("auto") / rows[case].median_s(other), *found


def _line(one):
    case, other, before, auto, others = one
    ahead = sum(mine < its for mine in auto for its in others)
    return (
        case.graph,
        case.topology + (", tight" if case.tight else ""),
        other,
        f"{before:.4f}",
        f"{statistics.median(auto) / statistics.median(others):.4f}",
        f"{ahead} of {len(auto) * len(others)} pairs",
    )


if __name__ == "__main__":
    app.run(main)
