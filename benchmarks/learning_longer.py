"""Whether 500 evaluations are what holds `hierarchical` and `gdp_scratch` back: ten times as many.

    python benchmarks/learning_longer.py --graphs=out/graphs           # half an hour on two cores; goes on
    python benchmarks/learning_longer.py --page=docs/reproduction.md   # puts the table of the results there

Some models of `python scripts/reproduce.py --claim=gdp`, with the placers that learn and those that do not, beside
what that claim's results have. `gdp_scratch` only on the smaller ones: an update takes it as long as the graph is
large. Step times are simulated, and do not depend on the machine.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare.suites import GDP  # noqa: E402
from tfplace.compare.tables import Page, table  # noqa: E402
from tfplace.report.progress import Stages  # noqa: E402

BUDGET = "5000 evaluations"
LEARNING = ("hierarchical", "gdp_scratch")
BESIDE = ("random_search", "annealing", "untrained")
RUNS = {("dlrm", "rnnlm_2"): (*BESIDE, *LEARNING), ("inception_v3", "nmt_2"): (*BESIDE, "hierarchical")}
"""Models, and who is run on them."""

_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Where extracted graphs are kept.")
_OUT = flags.DEFINE_string("out", str(ROOT / "benchmarks" / "learning_longer.jsonl"), "The results.")
_JOBS = flags.DEFINE_integer("jobs", 2, "Cells at a time.", 1)
_PAGE = flags.DEFINE_string("page", None, "A page whose table is rewritten; nothing is run.")


def main(argv: list[str]) -> None:
    with script(argv):
        _run_missing()


def _run_missing():
    from tfplace.compare.suite_runs import SuiteRun

    page = None if _PAGE.value is None else Page(_PAGE.value, "learning-longer")
    load, rows, failed = functools.partial(load_tensorflow, gpus=False), [], []
    for models, placers in RUNS.items():
        suite = dataclasses.replace(GDP, models=models, placers=placers)
        longer = SuiteRun(dataclasses.replace(suite, budget=BUDGET), Path(_GRAPHS.value), Path(_OUT.value), load)
        if page is None:
            with Stages(quiet=False) as stages:
                failed += longer.run(_JOBS.value, stage=stages.stage, progress=stages.part)
        suite = dataclasses.replace(suite, placers=("single", "expert", "heft", *placers))
        claim = SuiteRun(suite, Path(_GRAPHS.value), ROOT / suite.out, load)
        with_longer = {row.facts.case: row for row in longer.rows()}
        rows += [(row, with_longer[row.facts.case]) for row in claim.rows() if row.facts.case in with_longer]
    print(text(rows))
    if page is not None:
        page.write(text(rows))
    if failed:
        raise SystemExit(f"{failed}; the same command runs them again.")


def text(rows):
    """The table: medians over the seeds, with few and with many evaluations.

    Args:
      rows: pairs of what the claim's results and these have of a case.
    """
    from tfplace.compare.standings import bound_over_single, over_single, times

    few, many = (budget.split()[0] for budget in (GDP.budget, BUDGET))
    lines = [("bound", *(bound_over_single(row) for row, _ in rows))]
    lines += [(name, *(over_single(row, name) for row, _ in rows)) for name in ("expert", "heft")]
    for name in (*BESIDE, *LEARNING):
        lines.append((f"{name}, {few}", *(over_single(row, name) for row, _ in rows)))
        after = (times(longer.median_s(name), row.median_s("single")) for row, longer in rows)
        lines.append((f"{name}, {int(many):,}", *after))
    return table(("step over single, by evaluations", *(str(row.facts.case) for row, _ in rows)), lines)


if __name__ == "__main__":
    app.run(main)
