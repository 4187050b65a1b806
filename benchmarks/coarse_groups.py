"""What `placeto` gains at once by sweeping over few large groups before it sweeps over as many as it learned with.

    python benchmarks/coarse_groups.py --graphs=graphs              # a quarter of an hour; rewrites coarse_groups.json
    python benchmarks/coarse_groups.py --page=docs/pretrained.md    # puts the table of coarse_groups.json there

The same number of sweeps over 64 groups, over 256, and half and half, as it is. Graphs are those of `python
scripts/make_zoo.py --graphs=graphs` and `python scripts/make_families.py --graphs=graphs`, of which those that are held
out. Steps are simulated.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics

import paged
from variants import best_step_s

from models import families, zoo
from tfplace.compare.tables import table
from tfplace.compare.versus import geometric_mean
from tfplace.report.progress import Stages

TOPOLOGY, SEEDS, EVALUATIONS = "4xP100", 3, 1_000
COARSE, FINE = 64, 256
ARMS = {f"{COARSE} groups": (COARSE, COARSE), f"{FINE} groups": (0, FINE), f"{COARSE}, then {FINE}": (0, COARSE)}
"""Groups of the problem, if any; and the settings' `coarse`, without effect where there are no more groups."""

SETS = {family: [f"{family}_{i}" for i in families.split(family)[1]] for family in families.names()}
SETS["zoo"] = zoo.names()


def measure(graphs):
    """Set of graphs -> graph -> arm -> seconds, seed by seed."""
    names = [name for each in SETS.values() for name in each]
    steps = {}
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool, Stages(quiet=False) as stages:
        for name, found in zip(names, pool.imap(run, [graphs / f"{name}.npz" for name in names]), strict=True):
            stages.stage(name)
            steps[name] = found
    return {kind: {name: steps[name] for name in each} for kind, each in SETS.items()}


def run(path):
    """Arm -> seconds of the step that is found, seed by seed."""
    from tfplace.compare.cells import Case, problem_of
    from tfplace.core.graph import OpGraph
    from tfplace.learning.placeto_settings import PlacetoSettings
    from tfplace.policies.placeto import Placeto

    graph = OpGraph.load(path)
    found = {}
    for arm, (groups, coarse) in ARMS.items():
        problem = problem_of(graph, Case(path.stem, TOPOLOGY, groups=groups))
        placer = Placeto(settings=PlacetoSettings(coarse=coarse))
        found[arm] = [best_step_s(problem, placer, "placeto", EVALUATIONS, seed) for seed in range(SEEDS)]
    return found


def text(found):
    """The table."""
    lines = [(kind, str(len(graphs)), *(over(graphs.values(), arm) for arm in ARMS)) for kind, graphs in found.items()]
    return table((f"step over that of {FINE} groups, {TOPOLOGY}", "graphs", *ARMS), lines)


def over(graphs, arm):
    """Geometric mean over the graphs of medians, with the least and the most."""
    ratios = [statistics.median(one[arm]) / statistics.median(one[f"{FINE} groups"]) for one in graphs]
    return f"{geometric_mean(ratios):.3f} ({min(ratios):.2f}..{max(ratios):.2f})"


if __name__ == "__main__":
    paged.run("coarse_groups", measure, text)
