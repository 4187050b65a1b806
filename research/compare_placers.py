"""Every placer on every model of the zoo, with equal budgets: results, table and plot.

    python -m research.compare_placers --quick                    # three models, 2 s a search; some minutes in all
    python -m research.compare_placers                            # the whole zoo, 60 s a search, 3 seeds; half a day
    python -m research.compare_placers --suite=policies --quick   # policies, 200 evaluations a search; some minutes
    python -m research.compare_placers --suite=policies           # policies, 2,400 evaluations a search; hours
    python -m research.compare_placers --suite=samples            # two policies, 20,000 evaluations a search; hours
    python -m research.compare_placers --suite=gdp                # GDP, HDP and experts on the whole zoo; hours
    python -m research.compare_placers --suite=unseen  # trained policies on held-out graphs; hours, mostly of auto
    python -m research.compare_placers --suite=transfer --weights=out/weights  # trained without that family
    python -m research.compare_placers --suite=ablation --weights=out/ablation  # GDP trained without parts
    python -m research.compare_placers --models=gnmt_8 --placers=auto,heft --budget=60s

All step times are simulated. Results are written cell by cell; the same command goes on where it was stopped. Each cell
has a processor of its own (--jobs of them at a time), or runs where --engine says.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path

from absl import app, flags

from research.suites import suites
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script
from tfplace.comparison.journal import Journal
from tfplace.comparison.tables import Page
from tfplace.engines.choose import FORM, chosen_engine
from tfplace.files import check_writable, writing
from tfplace.registry import PLACERS
from tfplace.report.progress import Stages

ROOT = Path(__file__).resolve().parent.parent

_SUITE = flags.DEFINE_enum(
    "suite",
    "placers",
    list(suites.SUITES),
    "What is compared: all placers (docs/research/comparison.md), policies on equal groups "
    "(docs/research/policies.md), how soon two of them find what they find, GDP on the whole zoo, policies trained on "
    "other graphs, or on other families of them "
    "(docs/research/pretrained.md).",
)
_QUICK = flags.DEFINE_bool("quick", False, "A few small models with small budgets, to see that it works.")
_MODELS = flags.DEFINE_list("models", [], "Models of the zoo; by default those of the suite.")
_TOPOLOGIES = flags.DEFINE_list("topologies", [], "Presets; by default the suite's.")
_TIGHT = flags.DEFINE_bool("tight", True, "Whether to add cases with memory so tight that no device holds everything.")
_PLACERS = flags.DEFINE_list("placers", [], "By default the suite's.")
_BUDGET = flags.DEFINE_string("budget", None, "Of each cell, such as 60s or '500 evaluations'; by default the suite's.")
_SEEDS = flags.DEFINE_integer("seeds", None, "For placers with random choices; by default the suite's.", 1)
_JOBS = flags.DEFINE_integer("jobs", 2, "Cells at a time.", 1)
_ENGINE = flags.DEFINE_string(
    "engine", None, f"Where cells run instead: {FORM}; see docs/how_to/more_than_one_machine.md."
)
_WEIGHTS = flags.DEFINE_string("weights", None, "Directory of weights that --suite=transfer or ablation is about.")
_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Where extracted graphs are kept.")
_OUT = flags.DEFINE_string("out", None, "The results; by default research/data/compare.jsonl, or as the suite has it.")
_PLOT = flags.DEFINE_string("plot", None, "The plot; by default beside the results.")
_PAGE = flags.DEFINE_string("page", None, "A page whose tables are rewritten.")


def main(argv: list[str]) -> None:
    """Runs what is missing and prints where every placer stands."""
    with script(argv):
        _compare()


def _compare() -> None:
    from research.suites.suite_runs import SuiteRun

    suite = _suite()
    engine = None if _ENGINE.value is None else chosen_engine(_ENGINE.value)
    page = None if _PAGE.value is None else Page(_PAGE.value, suite.page)
    out = Path(_OUT.value or ROOT / suite.out)
    plot = Path(_PLOT.value or out.with_suffix(".png"))
    check_writable(plot)  # before anything takes long
    run = SuiteRun(suite, Path(_GRAPHS.value), out, functools.partial(load_tensorflow, gpus=False))
    with Stages(quiet=False) as stages:
        failed = run.run(_JOBS.value, stage=stages.stage, progress=stages.part, engine=engine)
    for task, error in failed:  # first of all, as what follows may fail for what is missing
        print(f"{task}: {error!r}", file=sys.stderr)
    _show(run.journal, page, plot)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, see above; the same command runs them again.")


def _suite() -> suites.Suite:
    """The suite that is asked for, with what the other flags change."""
    name = _SUITE.value
    if _QUICK.value and name not in suites.QUICKLY:
        raise SystemExit(f"--quick with --suite={name}; there are quick ones of {', '.join(suites.QUICKLY)}.")
    suite = suites.QUICKLY[name] if _QUICK.value else suites.SUITES[name]
    if _QUICK.value and _PAGE.value:
        raise SystemExit("--quick with --page; what a quick run finds is for no page.")
    if suite.trained:
        if not _WEIGHTS.value:
            raise SystemExit(f"--suite={name} needs --weights, a directory; see docs/research/pretrained.md.")
        folder = Path(_WEIGHTS.value)
        trained = {
            key: dataclasses.replace(one, weights=str(folder / one.weights)) for key, one in suite.trained.items()
        }
        suite = dataclasses.replace(suite, trained=trained)
    if _SEEDS.value:
        suite = suite.with_seeds(_SEEDS.value)
    changes = {
        "models": tuple(_MODELS.value),
        "topologies": tuple(_TOPOLOGIES.value),
        "placers": tuple(key for key in _PLACERS.value if key in suite.trained or PLACERS[key]),
        "budget": _BUDGET.value,
    }
    given = {name: value for name, value in changes.items() if value}
    return dataclasses.replace(suite, **given, **({} if _TIGHT.value else {"tight": ()}))


def _show(journal: Journal, page: Page | None, plot: Path) -> None:
    from research.tables.ablation_table import ablation_tables
    from research.tables.gdp_table import gdp_tables
    from research.tables.plots import cumulative, heat_map
    from research.tables.policies_table import policies_tables
    from research.tables.samples_table import samples_tables
    from research.tables.transfer_table import transfer_tables
    from research.tables.unseen_table import curves, unseen_tables
    from tfplace.comparison.case_results import placers_of, read_case_results
    from tfplace.comparison.placers_table import compare_tables

    rows = [row for row in read_case_results(journal) if row.runs]
    if not rows:
        print("There are no results.")
        return
    tables = {
        "placers": compare_tables,
        "policies": policies_tables,
        "samples": samples_tables,
        "gdp": gdp_tables,
        "transfer": transfer_tables,
        "ablation": ablation_tables,
        "unseen": unseen_tables,
    }
    text = tables[_SUITE.value](rows)
    print(text)
    if page is not None:
        page.write(text)
    with writing(plot):
        if _SUITE.value == "unseen":
            over_auto = f"step over that of auto with {journal.header['budget']}"
            cumulative(plot, curves(rows), axes=(over_auto, "part of the cases"))
            return
        names = placers_of(rows)
        rows = [row for row in rows if row.facts.bound_s > 0]
        over = [[row.median_s(name) / row.facts.bound_s for name in names] for row in rows]
        if rows:
            heat_map(plot, [str(r.facts.case) for r in rows], names, over, what="step over bound")


if __name__ == "__main__":
    app.run(main)
