"""What `placeto` and `gdp` gain at once by placing few large groups before what they place as they learned to.

    python -m research.benchmarks.coarse_groups --graphs=graphs  # a quarter of an hour; rewrites coarse_groups.json
    python -m research.benchmarks.coarse_groups --page=docs/research/pretrained_parts.md  # puts its tables there

The same number of sweeps or draws in few groups, in 256 groups (`placeto`) or units (`gdp`), and half and half, as it
is. Graphs are those of `python scripts/make_zoo.py --graphs=graphs` and `python scripts/make_families.py
--graphs=graphs`, of which those that are held out. Steps are simulated.
"""

from __future__ import annotations

import multiprocessing
import os

from tfplace_zoo import zoo

from research.benchmarks import common
from research.benchmarks.common import best_step_s, held_out, over
from tfplace.comparison.tables import table
from tfplace.report.progress import Stages

TOPOLOGY, SEEDS, EVALUATIONS = "4xP100", 3, 1_000
FINE = 256
NEVER = 10**9
"""More groups than there are units."""

ARMS = {
    "placeto": {"64 groups": (64, NEVER), "256 groups": (0, FINE), "64, then 256": (0, 64)},
    "gdp": {"32 groups": (32, NEVER), "units": (0, NEVER), "32, then units": (0, 32)},
}
"""Of each policy, in its own order: groups of the problem, if any; and the settings' `coarse`, without effect where
there are no more groups or units. The first is coarse, the second as it learned."""

SETS = held_out() | {"zoo": zoo.names()}


def measure(graphs):
    """Policy -> set of graphs -> graph -> arm -> seconds, seed by seed."""
    names = [name for each in SETS.values() for name in each]
    steps = {}
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool, Stages(quiet=False) as stages:
        for name, found in zip(names, pool.imap(run, [graphs / f"{name}.npz" for name in names]), strict=True):
            stages.stage(name)
            steps[name] = found
    return {
        policy: {kind: {name: steps[name][policy] for name in each} for kind, each in SETS.items()} for policy in ARMS
    }


def run(path):
    """Policy -> arm -> seconds of the step that is found, seed by seed."""
    from tfplace.cli.quiet import load_tensorflow
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph
    from tfplace.learned.policies.gdp import Gdp, GdpSettings
    from tfplace.learned.policies.placeto import Placeto
    from tfplace.learned.training.placeto_settings import PlacetoSettings

    load_tensorflow(gpus=False)
    make = {
        "placeto": lambda coarse: Placeto(settings=PlacetoSettings(coarse=coarse), moves=0),
        "gdp": lambda coarse: Gdp(settings=GdpSettings(coarse=coarse)),
    }
    graph = OpGraph.load(path)
    found = {policy: {} for policy in ARMS}
    for policy, arms in ARMS.items():
        for arm, (groups, coarse) in arms.items():
            problem = problem_of(graph, Case(path.stem, TOPOLOGY, groups=groups))
            placer = make[policy](coarse)
            found[policy][arm] = [best_step_s(problem, placer, policy, EVALUATIONS, seed) for seed in range(SEEDS)]
    return found


def text(found):
    """The tables, one of each policy."""
    return "\n\n".join(of_policy(policy, sets) for policy, sets in found.items())


def of_policy(policy, sets):
    """One table."""
    arms = ARMS[policy]
    _, usual, _ = arms
    lines = [
        (kind, str(len(graphs)), *(over(graphs.values(), arm, usual) for arm in arms)) for kind, graphs in sets.items()
    ]
    return table((f"step of {policy} over that of {usual}, {TOPOLOGY}", "graphs", *arms), lines)


if __name__ == "__main__":
    common.run("coarse_groups", measure, text)
