"""Every placer on every model of the zoo, with equal budgets: results, table and plot.

    python scripts/compare.py --quick                 # three models, 2 s a search; some minutes in all
    python scripts/compare.py                         # the whole zoo, 60 s a search, 3 seeds; half a day on two cores
    python scripts/compare.py --models=gnmt_8 --placers=auto,heft --budget=60s

All step times are simulated. Results are written cell by cell; the same command goes on where it was stopped. Each cell
has a processor of its own (--jobs of them at a time).
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.compare.cells import CONSTRUCTIVE, SEARCHES, Case  # noqa: E402
from tfplace.compare.journal import Journal  # noqa: E402
from tfplace.registry import PLACERS  # noqa: E402
from tfplace.report.progress import Stages  # noqa: E402
from tfplace.search.budget import Budget  # noqa: E402

QUICK = {
    "inception_v3": {"batch": 32},
    "rnnlm_2": {"batch": 64, "steps": 10},
    "transformer": {"batch": 32, "layers": 4},
}

_QUICK = flags.DEFINE_bool("quick", False, "Three models, 4xP100, 2 seconds a search.")
_MODELS = flags.DEFINE_list("models", [], "Models of the zoo; by default all that a paper placed, and today's.")
_TOPOLOGIES = flags.DEFINE_list("topologies", [], "Presets; by default the models' own numbers of P100s, or 4.")
_TIGHT = flags.DEFINE_bool("tight", True, "Whether to add each case with memory so tight that no device holds it.")
_PLACERS = flags.DEFINE_list("placers", [], "By default all but those for throughput or small graphs.")
_BUDGET = flags.DEFINE_string("budget", None, "Of each cell: seconds or evaluations; 60s, or 2s if quick.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "For placers with random choices.", 1)
_JOBS = flags.DEFINE_integer("jobs", 2, "Cells at a time.", 1)
_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Where extracted graphs are kept.")
_OUT = flags.DEFINE_string("out", None, "The results; by default benchmarks/compare.jsonl, or out/quick.jsonl.")
_PLOT = flags.DEFINE_string("plot", None, "The plot; by default beside the results.")
_PAGE = flags.DEFINE_string("page", None, "A page whose tables named `compare` are rewritten.")


def main(argv: list[str]) -> None:
    """Runs what is missing and prints where every placer stands."""
    del argv
    from tfplace.compare.running import run_all, tasks

    models, placers = _models(), _placers()
    budget = Budget.parse(_BUDGET.value or ("2s" if _QUICK.value else "60s"))
    if _PAGE.value and not Path(_PAGE.value).exists():
        raise SystemExit(f"There is no {_PAGE.value}, whose tables are to be rewritten.")
    out = Path(_OUT.value or ROOT / ("out/quick.jsonl" if _QUICK.value else "benchmarks/compare.jsonl"))
    journal = Journal(out, {"budget": str(budget), "simulated": True})
    with Stages(quiet=False) as stages:
        cases = [(_graph(name, stages), case) for name in models for case in _cases(name)]
        todo = tasks(cases, placers, _SEEDS.value, budget, journal)
        stages.stage(f"{len(todo)} cells of {budget}")
        failed = run_all(todo, journal, jobs=_JOBS.value, progress=stages.part)
    _show(journal, out)
    for task, error in failed:
        print(f"{task.case}, {task.placer or 'facts'}, seed {task.seed}: {error!r}", file=sys.stderr)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, see above; the same command runs them again.")


def _models() -> list[str]:
    from models import zoo

    wanted = _MODELS.value or ([*QUICK] if _QUICK.value else list(zoo.names()))
    for name in wanted:
        zoo.describe(name)  # says which there are
    return wanted


def _placers() -> list[str]:
    known = [name for name in (*CONSTRUCTIVE, *SEARCHES) if name in PLACERS]
    return [name for name in _PLACERS.value if PLACERS[name]] or known


def _cases(model: str) -> list[Case]:
    from models import zoo

    counts = zoo.ENTRIES[model].devices or (4,)
    own = [] if _QUICK.value else [f"{n}xP100" for n in counts if n in (2, 4, 8)]
    topologies = _TOPOLOGIES.value or own or ["4xP100"]
    return [Case(model, name, tight) for name in topologies for tight in ((False, True) if _TIGHT.value else (False,))]


def _graph(model: str, stages: Stages) -> Path:
    """The file of a model's graph, extracted in a process of its own if it is not there."""
    path = Path(_GRAPHS.value) / ("quick" if _QUICK.value else "") / f"{model}.npz"
    if not path.exists():
        stages.stage(f"extracting {model}")
        path.parent.mkdir(parents=True, exist_ok=True)
        child = multiprocessing.get_context("spawn").Process(target=_extract, args=(model, path, _QUICK.value))
        child.start()
        child.join()
        if child.exitcode:
            raise SystemExit(f"{model} could not be extracted; see above.")
    return path


def _extract(model: str, path: Path, quick: bool) -> None:
    load_tensorflow(gpus=False)
    import tfplace
    from models import zoo

    built = zoo.build(model, **(QUICK.get(model, {}) if quick else {}))
    tfplace.extract(built.model, built.batch, name=model).save(path)


def _show(journal: Journal, out: Path) -> None:
    from tfplace.compare.placers_table import compare_tables
    from tfplace.compare.standings import placers_of, standings
    from tfplace.compare.tables import replace_between
    from tfplace.report.plots import heat_map

    rows = [row for row in standings(journal) if row.runs]
    text = compare_tables(rows)
    print(text)
    if _PAGE.value:
        page = Path(_PAGE.value)
        page.write_text(replace_between(page.read_text(), "compare", text))
    names = placers_of(rows)
    over = [[row.median_s(name) / row.facts.bound_s for name in names] for row in rows]
    heat_map(
        _PLOT.value or out.with_suffix(".png"), [str(r.facts.case) for r in rows], names, over, what="step over bound"
    )


if __name__ == "__main__":
    app.run(main)
