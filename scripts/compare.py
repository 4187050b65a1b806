"""Every placer on every model of the zoo, with equal budgets: results, table and plot.

    python scripts/compare.py --quick                    # three models, 2 s a search; some minutes in all
    python scripts/compare.py                            # the whole zoo, 60 s a search, 3 seeds; half a day
    python scripts/compare.py --suite=policies --quick   # policies, 200 evaluations a search; some minutes
    python scripts/compare.py --suite=policies           # policies, 2,400 evaluations a search, 5 seeds; hours
    python scripts/compare.py --suite=samples            # two policies, 20,000 evaluations a search; hours
    python scripts/compare.py --suite=gdp                # GDP, HDP and experts on the whole zoo; hours
    python scripts/compare.py --suite=unseen             # trained policies on held-out graphs; hours, mostly of auto
    python scripts/compare.py --suite=transfer --weights=out/weights    # trained without the family that is placed
    python scripts/compare.py --models=gnmt_8 --placers=auto,heft --budget=60s

All step times are simulated. Results are written cell by cell; the same command goes on where it was stopped. Each cell
has a processor of its own (--jobs of them at a time).
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.compare import suites  # noqa: E402
from tfplace.compare.cells import Case  # noqa: E402
from tfplace.compare.journal import Journal  # noqa: E402
from tfplace.registry import PLACERS  # noqa: E402
from tfplace.report.progress import Stages  # noqa: E402
from tfplace.search.budget import Budget  # noqa: E402

_SUITE = flags.DEFINE_enum(
    "suite",
    "placers",
    list(suites.SUITES),
    "What is compared: all placers (docs/comparison.md), policies on equal groups (docs/policies.md), how soon two of "
    "them find what they find, GDP on the whole zoo, policies trained on other graphs, or on other families of them "
    "(docs/pretrained.md).",
)
_QUICK = flags.DEFINE_bool("quick", False, "A few small models with small budgets, to see that it works.")
_MODELS = flags.DEFINE_list("models", [], "Models of the zoo; by default those of the suite.")
_TOPOLOGIES = flags.DEFINE_list("topologies", [], "Presets; by default the suite's.")
_TIGHT = flags.DEFINE_bool("tight", True, "Whether to add cases with memory so tight that no device holds everything.")
_PLACERS = flags.DEFINE_list("placers", [], "By default the suite's.")
_BUDGET = flags.DEFINE_string("budget", None, "Of each cell: seconds or evaluations; by default the suite's.")
_SEEDS = flags.DEFINE_integer("seeds", None, "For placers with random choices; by default the suite's.", 1)
_JOBS = flags.DEFINE_integer("jobs", 2, "Cells at a time.", 1)
_WEIGHTS = flags.DEFINE_string("weights", None, "Directory of weights that --suite=transfer is about.")
_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Where extracted graphs are kept.")
_OUT = flags.DEFINE_string("out", None, "The results; by default benchmarks/compare.jsonl, or as the suite has it.")
_PLOT = flags.DEFINE_string("plot", None, "The plot; by default beside the results.")
_PAGE = flags.DEFINE_string("page", None, "A page whose tables are rewritten.")

_HELD_OUT = ("unseen", "transfer")
"""Suites of graphs of the families that policies are not trained on."""


def main(argv: list[str]) -> None:
    """Runs what is missing and prints where every placer stands."""
    del argv
    from tfplace.compare.running import run_all, tasks

    suite = _suite()
    models = _models(suite)
    budget = Budget.parse(suite.budget)
    if _PAGE.value and not Path(_PAGE.value).exists():
        raise SystemExit(f"There is no {_PAGE.value}, whose tables are to be rewritten.")
    out = Path(_OUT.value or ROOT / suite.out)
    journal = Journal(out, {"budget": str(budget), "simulated": True})
    with Stages(quiet=False) as stages:
        cases = [(_graph(name, suite, stages), case) for name in models for case in _cases(name, suite)]
        todo = tasks(cases, suite.placers, suite.seeds, budget, journal, trained=suite.trained)
        stages.stage(f"{len(todo)} cells of {budget}")
        learned = suite.trained or any(getattr(PLACERS[name], "learned", False) for name in suite.placers)
        prepare = functools.partial(load_tensorflow, gpus=False) if learned else None
        failed = run_all(todo, journal, jobs=_JOBS.value, progress=stages.part, prepare=prepare)
    _show(journal, suite, out)
    for task, error in failed:
        print(f"{task.case}, {task.placer or 'facts'}, seed {task.seed}: {error!r}", file=sys.stderr)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, see above; the same command runs them again.")


def _suite() -> suites.Suite:
    """The suite that is asked for, with what the other flags change."""
    name = _SUITE.value
    if _QUICK.value and name not in suites.QUICKLY:
        raise SystemExit(f"--quick with --suite={name}; there are quick ones of {', '.join(suites.QUICKLY)}.")
    suite = suites.QUICKLY[name] if _QUICK.value else suites.SUITES[name]
    suite = _held_out(suite) if name in _HELD_OUT else suite
    if suite.trained:
        if not _WEIGHTS.value:
            raise SystemExit(f"--suite={name} needs --weights, a directory; see docs/pretrained.md.")
        folder = Path(_WEIGHTS.value)
        trained = {
            key: dataclasses.replace(one, weights=str(folder / one.weights)) for key, one in suite.trained.items()
        }
        suite = dataclasses.replace(suite, trained=trained)
    changes = {
        "models": tuple(_MODELS.value),
        "topologies": tuple(_TOPOLOGIES.value),
        "placers": tuple(key for key in _PLACERS.value if key in suite.trained or PLACERS[key]),
        "budget": _BUDGET.value,
        "seeds": _SEEDS.value,
    }
    given = {name: value for name, value in changes.items() if value}
    return dataclasses.replace(suite, **given, **({} if _TIGHT.value else {"tight": ()}))


def _held_out(suite: suites.Suite) -> suites.Suite:
    """On members of families that policies are not trained on."""
    from models import families

    members = tuple(f"{name}_{index}" for name in families.names() for index in families.split(name)[1])
    return dataclasses.replace(suite, models=members)


def _models(suite: suites.Suite) -> Sequence[str]:
    from models import zoo

    for name in suite.models:
        if not _family(name):
            zoo.describe(name)  # says which there are
    return suite.models or zoo.names()


def _family(model: str) -> str:
    """Of a member's name; empty for a model of the zoo."""
    from models import families, zoo

    family = model.rpartition("_")[0]
    return family if family in families.names() and model not in zoo.names() else ""


def _cases(model: str, suite: suites.Suite) -> list[Case]:
    from models import zoo

    return suite.cases(model, () if _family(model) else zoo.ENTRIES[model].devices)


def _graph(model: str, suite: suites.Suite, stages: Stages) -> Path:
    """The file of a model's graph, extracted in a process of its own if it is not there."""
    parameters = suite.parameters.get(model, {})
    path = Path(_GRAPHS.value) / ("quick" if parameters else "") / f"{model}.npz"
    if not path.exists():
        stages.stage(f"extracting {model}")
        path.parent.mkdir(parents=True, exist_ok=True)
        child = multiprocessing.get_context("spawn").Process(target=_extract, args=(model, path, dict(parameters)))
        child.start()
        child.join()
        if child.exitcode:
            raise SystemExit(f"{model} could not be extracted; see above.")
    return path


def _extract(model: str, path: Path, parameters: dict[str, int]) -> None:
    load_tensorflow(gpus=False)
    import tfplace
    from models import families, zoo

    family = _family(model)
    built = families.member(family, int(model.rpartition("_")[2])) if family else zoo.build(model, **parameters)
    tfplace.extract(built.model, built.batch, name=model).save(path)


def _show(journal: Journal, suite: suites.Suite, out: Path) -> None:
    from tfplace.compare.gdp_table import gdp_tables
    from tfplace.compare.placers_table import compare_tables
    from tfplace.compare.policies_table import policies_tables
    from tfplace.compare.samples_table import samples_tables
    from tfplace.compare.standings import placers_of, standings
    from tfplace.compare.tables import replace_between
    from tfplace.compare.transfer_table import transfer_tables
    from tfplace.compare.unseen_table import curves, unseen_tables
    from tfplace.report.plots import cumulative, heat_map

    rows = [row for row in standings(journal) if row.runs]
    tables = {
        "placers": compare_tables,
        "policies": policies_tables,
        "samples": samples_tables,
        "gdp": gdp_tables,
        "transfer": transfer_tables,
        "unseen": unseen_tables,
    }
    text = tables[_SUITE.value](rows)
    print(text)
    if _PAGE.value:
        page = Path(_PAGE.value)
        page.write_text(replace_between(page.read_text(), suite.page, text))
    plot = _PLOT.value or out.with_suffix(".png")
    if _SUITE.value == "unseen":
        cumulative(plot, curves(rows), axes=("step over that of auto with 60 s", "part of the held-out cases"))
        return
    names = placers_of(rows)
    over = [[row.median_s(name) / row.facts.bound_s for name in names] for row in rows]
    heat_map(plot, [str(r.facts.case) for r in rows], names, over, what="step over bound")


if __name__ == "__main__":
    app.run(main)
