"""Whether 500 evaluations are what holds `hierarchical` and `gdp_scratch` back, or having no groups: ten times as many.

    python -m research.benchmarks.learning_longer --graphs=out/graphs           # half an hour on two cores; goes on
    python -m research.benchmarks.learning_longer --page=docs/research/claims_gdp.md   # puts its table there

Some models of `python -m research.reproduce_claims --claim=gdp`, with the placers that learn and those that do not,
beside what that claim's results have, and those of `research/compare_placers.py --suite=policies` on groups.
`gdp_scratch` only on the smaller ones: an update takes it as long as the graph is large. Step times are simulated, and
do not depend on the machine.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path

from absl import app, flags

from research.suites.suites import GDP, POLICIES
from research.suites.versus import UNLEARNED
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script
from tfplace.comparison.tables import Page, table
from tfplace.report.progress import Stages

ROOT = Path(__file__).resolve().parents[2]

BUDGET = "5000 evaluations"
LEARNING = ("hierarchical", "gdp_scratch")
RUNS = {("dlrm", "rnnlm_2"): (*UNLEARNED, *LEARNING), ("inception_v3", "nmt_2"): (*UNLEARNED, "hierarchical")}
"""Models, and who is run on them."""

_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Where extracted graphs are kept.")
_OUT = flags.DEFINE_string("out", str(ROOT / "research" / "data" / "learning_longer.jsonl"), "The results.")
_JOBS = flags.DEFINE_integer("jobs", 2, "Cells at a time.", 1)
_PAGE = flags.DEFINE_string("page", None, "A page whose table is rewritten; nothing is run.")


def main(argv: list[str]) -> None:
    with script(argv):
        _learn()


def _learn():
    from research.suites.suite_runs import SuiteRun

    page = None if _PAGE.value is None else Page(_PAGE.value, "learning-longer")
    load, rows, failed = functools.partial(load_tensorflow, gpus=False), [], []

    def results(suite, models, placers, out, **changes):
        suite = dataclasses.replace(
            suite, models=models, placers=placers, topologies=GDP.topologies, tight=(), **changes
        )
        return SuiteRun(suite, Path(_GRAPHS.value), Path(out), load)

    for models, placers in RUNS.items():
        longer = results(GDP, models, placers, _OUT.value, budget=BUDGET, own_seeds={})
        if page is None:
            with Stages(quiet=False) as stages:
                failed += longer.run(_JOBS.value, stage=stages.stage, progress=stages.part)
        beside = ("single", "expert", "heft", *UNLEARNED, *LEARNING)
        files = (results(suite, models, beside, ROOT / suite.out) for suite in (GDP, POLICIES))
        few, grouped, many = ({row.facts.case.graph: row for row in run.rows()} for run in (*files, longer))
        rows += [(few[model], grouped.get(model), many[model]) for model in models if model in few and model in many]
    print(text(rows))
    if page is not None:
        page.write(text(rows))
    for task, error in failed:
        print(f"{task}: {error!r}", file=sys.stderr)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, see above; the same command runs them again.")


def text(rows):
    """The table: medians over the seeds, with few and many evaluations, and in between on groups.

    Args:
      rows: what the three files have of a model; None where one has nothing.
    """
    from tfplace.comparison.case_results import bound_over_single, over_single, times

    few, some, many = (int(budget.split()[0]) for budget in (GDP.budget, POLICIES.budget, BUDGET))
    lines = [("bound", *(bound_over_single(row) for row, _, _ in rows))]
    lines += [(name, *(over_single(row, name) for row, _, _ in rows)) for name in ("expert", "heft")]
    for name in (*UNLEARNED, *LEARNING):
        lines.append((f"{name}, {few:,}", *(over_single(row, name) for row, _, _ in rows)))
        after = (
            times(row.median_s(name), one.median_s("single")) if row.ran(name) else "not run" for one, _, row in rows
        )
        lines.append((f"{name}, {many:,}", *after))
        on_groups = (over_single(row, name) if row else "not run" for _, row, _ in rows)
        lines.append((f"{name}, {some:,} on {POLICIES.groups} groups", *on_groups))
    return table(("step over single, by evaluations", *(str(row.facts.case) for row, _, _ in rows)), lines)


if __name__ == "__main__":
    app.run(main)
