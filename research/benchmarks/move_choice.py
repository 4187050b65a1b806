"""What the selector among moves is worth, on the graphs that are held out.

    python -m research.benchmarks.move_choice --graphs=graphs             # twenty minutes; rewrites move_choice.json
    python -m research.benchmarks.move_choice --page=docs/research/pretrained_parts.md   # puts its table there

From what `placeto` places without moves, as many placements in moves as it has, and a quarter: all that are drawn, as
`local_search` tries them, or those of which most is expected, as `placeto` does. Graphs are those of
`python scripts/make_families.py --graphs=graphs`. Steps are simulated.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics

from research.benchmarks import common
from research.benchmarks.common import best_step_s, held_out, over
from tfplace.comparison.tables import table
from tfplace.report.progress import Stages

TOPOLOGY, SEEDS = "4xP100", 3
ARMS = {
    "no moves": (0, False),
    "1,000 drawn": (1_000, False),
    "1,000 chosen": (1_000, True),
    "4,000 drawn": (4_000, False),
    "4,000 chosen": (4_000, True),
}
"""Placements, and whether the moves are chosen."""


def measure(graphs):
    """Family -> graph -> arm -> seconds, seed by seed."""
    sets = held_out()
    cells = [*itertools.product(((kind, name) for kind in sets for name in sets[kind]), range(SEEDS))]
    found = {kind: {name: {arm: [] for arm in ARMS} for name in names} for kind, names in sets.items()}
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool, Stages(quiet=False) as stages:
        paths = [(graphs / f"{name}.npz", seed) for (_, name), seed in cells]
        for ((kind, name), seed), steps in zip(cells, pool.imap(run, paths), strict=True):
            stages.stage(f"{name}, seed {seed}")
            for arm, step_s in steps.items():
                found[kind][name][arm].append(step_s)
    return found


def run(cell):
    """Arm -> seconds of the step that is found."""
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph
    from tfplace.learned.training.learned_move_selector import LearnedMoveSelector
    from tfplace.pretraining.move_lessons import Annealed, placed

    path, seed = cell
    problem = problem_of(OpGraph.load(path), Case(path.stem, TOPOLOGY))
    start = placed(problem, seed)
    return {
        arm: best_step_s(
            problem, Annealed(start, LearnedMoveSelector.shipped() if chosen else None), arm, moves + 1, seed
        )
        for arm, (moves, chosen) in ARMS.items()
    }


def text(found):
    """The table, with all graphs together in its last line."""
    kinds = {kind: [*graphs.values()] for kind, graphs in found.items()}
    kinds["all"] = [one for graphs in kinds.values() for one in graphs]
    lines = [
        (kind, str(len(graphs)), *(over(graphs, arm, "no moves") for arm in ARMS)) for kind, graphs in kinds.items()
    ]
    lines.append(("chosen over drawn", "", "", *_pairs(kinds["all"])))
    return table((f"step over that without moves, {TOPOLOGY}", "graphs", *ARMS), lines)


def _pairs(graphs):
    """Of each number of moves, in the second of its columns: the step with those chosen over that with those drawn."""
    cells = []
    for moves in ("1,000", "4,000"):
        ratios = [
            statistics.median(one[f"{moves} chosen"]) / statistics.median(one[f"{moves} drawn"]) for one in graphs
        ]
        cells += ["", f"{statistics.geometric_mean(ratios):.3f}, shorter in {sum(r < 1 for r in ratios)}"]
    return cells


if __name__ == "__main__":
    common.run("move_choice", measure, text)
