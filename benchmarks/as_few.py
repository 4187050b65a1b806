"""Searches that learn nothing with as few placements as trained policies try, beside what --suite=unseen has.

    python benchmarks/as_few.py --graphs=graphs --topologies=4xP100,8xP100    # two minutes; adds to unseen.jsonl

`random_search_49` and `annealing_49` are these placers with 49 evaluations on each graph that is held out, as many as
`placeto` and `gdp` try at once. Simulated.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare import suites  # noqa: E402

EVALUATIONS = 49
NAMES = {f"{placer}_{EVALUATIONS}": placer for placer in ("random_search", "annealing")}

_GRAPHS = flags.DEFINE_string("graphs", None, "Directory of the families' graphs.", required=True)
_OUT = flags.DEFINE_string("out", str(ROOT / suites.UNSEEN.out), "The results, to which these are added.")
_SEEDS = flags.DEFINE_integer("seeds", suites.UNSEEN.seeds, "Runs of each.", 1)
_TOPOLOGIES = flags.DEFINE_list("topologies", list(suites.UNSEEN.topologies), "Presets.")


def main(argv: list[str]) -> None:
    with script(argv):
        _run_missing()


def _run_missing():
    from tfplace.compare import cells
    from tfplace.compare.journal import Journal
    from tfplace.compare.suite_runs import held_out_members
    from tfplace.core.graph import OpGraph
    from tfplace.report.progress import Stages
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search

    journal = Journal(Path(_OUT.value), {"budget": str(Budget.parse(suites.UNSEEN.budget)), "simulated": True})
    with Stages(quiet=False) as stages:
        for topology in _TOPOLOGIES.value:
            stages.stage(topology)
            for name in held_out_members():
                case = cells.Case(name, topology)
                problem = cells.problem_of(OpGraph.load(Path(_GRAPHS.value) / f"{name}.npz"), case)
                for shown, placer in NAMES.items():
                    for seed in range(_SEEDS.value):
                        if not journal.done(case, shown, seed):
                            search = Search(problem, Budget(evaluations=EVALUATIONS), seed)
                            run = cells.run_placer(search, case, placer, seed)
                            journal.add(dataclasses.replace(run, placer=shown))


if __name__ == "__main__":
    app.run(main)
