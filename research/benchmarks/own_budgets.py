"""Placers with budgets of their own on the graphs that are held out, beside what --suite=unseen has.

    python -m research.benchmarks.own_budgets --graphs=graphs --placers=random_search_49,annealing_49  # minutes
    python -m research.benchmarks.own_budgets --graphs=graphs --placers=local_search_500,auto_2000  # half an hour
    python -m research.benchmarks.own_budgets --graphs=graphs --placers=placeto_scratch_20000 --topologies=4xP100

adds to unseen.jsonl what is missing there. The number in a name is that of its evaluations: `random_search_49`,
`annealing_49` and `local_search_49` are these searches with as many as the policies try at once,
`local_search_500` has ten times as many, `placeto_49` is `placeto` without moves, `random_search_4049` and
`local_search_4049` have as many as it has with them, `auto_2000` is `auto` for some seconds, and `placeto_scratch_5000`
and `placeto_scratch_20000` are Placeto that learns on each graph by itself. Simulated.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from absl import app, flags

from research.suites import suites
from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script

ROOT = Path(__file__).resolve().parents[2]

NAMES = [name for name in suites.UNSEEN.beside if name.rpartition("_")[2].isdigit()]

_GRAPHS = flags.DEFINE_string("graphs", None, "Directory of the families' graphs.", required=True)
_OUT = flags.DEFINE_string("out", str(ROOT / suites.UNSEEN.out), "The results, to which these are added.")
_SEEDS = flags.DEFINE_integer("seeds", suites.UNSEEN.seeds, "Runs of each.", 1)
_TOPOLOGIES = flags.DEFINE_list("topologies", list(suites.UNSEEN.topologies), "Presets.")
_PLACERS = flags.DEFINE_list("placers", NAMES, "Which.")
flags.register_validator("placers", lambda names: {*names} <= {*NAMES}, f"expected some of {', '.join(NAMES)}")


def main(argv: list[str]) -> None:
    with script(argv):
        _run_missing()


def _run_missing():
    from research.suites.running import refuse_other_graphs
    from research.suites.suite_runs import held_out_members
    from tfplace.comparison import cells
    from tfplace.comparison.journal import Journal
    from tfplace.core.graph import OpGraph
    from tfplace.report.progress import Stages
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search

    load_tensorflow(gpus=False)
    journal = Journal(Path(_OUT.value), {"budget": str(Budget.parse(suites.UNSEEN.budget)), "simulated": True})
    with Stages(quiet=False) as stages:
        for topology in _TOPOLOGIES.value:
            for name in held_out_members():
                stages.stage(f"{name} on {topology}")
                case = cells.Case(name, topology)
                graph = Path(_GRAPHS.value) / f"{name}.npz"
                refuse_other_graphs([(graph, case)], journal)
                problem = cells.problem_of(OpGraph.load(graph), case)
                for shown in _PLACERS.value:
                    placer, evaluations = suites.own_budget(shown)
                    for seed in range(_SEEDS.value):
                        if not journal.done(case, shown, seed):
                            search = Search(problem, Budget(evaluations=evaluations), seed)
                            run = cells.run_placer(search, case, placer, seed)
                            journal.add(dataclasses.replace(run, placer=shown))


if __name__ == "__main__":
    app.run(main)
