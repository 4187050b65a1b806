"""How good the placements in groups are that a policy could learn from, on the graphs that are held out.

    python -m research.benchmarks.group_lessons --graphs=graphs             # ten minutes; rewrites group_lessons.json
    python -m research.benchmarks.group_lessons --page=docs/research/pretrained_parts.md   # puts its table there

`auto` with as many evaluations as it has for the placements that policies learn from, in groups of several sizes by
two groupers, and with every unit by itself. Graphs are those of `python scripts/make_families.py --graphs=graphs`.
Steps are simulated.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os

from research.benchmarks import common
from research.benchmarks.common import best_step_s, held_out, over
from tfplace.comparison.tables import table
from tfplace.report.progress import Stages

TOPOLOGY, EVALUATIONS, SEED = "4xP100", 10_000, 0
ARMS = {
    "merge, 256": ("merge", 256),
    "merge, 1,024": ("merge", 1_024),
    "heavy_edge, 256": ("heavy_edge", 256),
    "heavy_edge, 1,024": ("heavy_edge", 1_024),
    "units": ("units", 0),
}
"""Groupers, and how many groups they make at most."""


def measure(graphs):
    """Family -> graph -> arm -> seconds, seed by seed; there is one."""
    sets = held_out()
    cells = [*itertools.product(((kind, name) for kind in sets for name in sets[kind]), ARMS)]
    found = {kind: {name: {} for name in names} for kind, names in sets.items()}
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool, Stages(quiet=False) as stages:
        paths = [(graphs / f"{name}.npz", arm) for (_, name), arm in cells]
        for ((kind, name), arm), step_s in zip(cells, pool.imap(run, paths), strict=True):
            stages.stage(f"{name}, {arm}: {1e3 * step_s:.2f} ms")
            found[kind][name][arm] = [step_s]
    return found


def run(cell):
    """Seconds of the step that `auto` finds."""
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph
    from tfplace.group.merge import merge_units
    from tfplace.placers.auto import Auto
    from tfplace.registry import GROUPERS

    path, arm = cell
    grouper, count = ARMS[arm]
    problem = problem_of(OpGraph.load(path), Case(path.stem, TOPOLOGY))
    grouped = merge_units(problem, GROUPERS[grouper](problem, count)) if count else problem
    return best_step_s(grouped, Auto(), "auto", EVALUATIONS, SEED)


def text(found):
    """The table."""
    lines = [
        (kind, str(len(graphs)), *(over(graphs.values(), arm, "units") for arm in ARMS))
        for kind, graphs in found.items()
    ]
    return table((f"step over that of units, {TOPOLOGY}", "graphs", *ARMS), lines)


if __name__ == "__main__":
    common.run("group_lessons", measure, text)
