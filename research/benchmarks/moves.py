"""What `local_search` gains by moves on the critical path, and by moves of scopes and of producers with consumers.

    python -m research.benchmarks.moves --graphs=out/graphs            # some minutes; rewrites moves.json
    python -m research.benchmarks.moves --page=docs/research/local_search.md      # puts the table of moves.json there

The same search without any, and with one after the other, at equal numbers of evaluations; a critical path counts as
one. Graphs are those of `python scripts/make_zoo.py --graphs=out/graphs`. Steps are simulated.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import statistics
from unittest import mock

from research.benchmarks import common
from research.benchmarks.common import best_step_s, spread
from tfplace.comparison.tables import table
from tfplace.report.progress import Stages

GRAPHS = ("transformer", "inception_v3", "wavenet_2x18", "moe", "nmt_2", "gnmt_2", "nasnet", "amoebanet")
TOPOLOGY, EVALUATIONS, SEEDS = "4xP100", 5_000, 3
ARMS = {
    "none": (False, False, False),
    "critical path": (True, False, False),
    "and scopes": (True, True, False),
    "and consumers": (True, True, True),
}


def measure(graphs):
    """Graph -> seconds of one device, and of every arm, seed by seed."""
    cells = [*itertools.product(GRAPHS, ARMS, range(SEEDS))]
    found = {name: {arm: [] for arm in ARMS} for name in GRAPHS}
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool, Stages(quiet=False) as stages:
        paths = [(graphs / f"{name}.npz", arm, seed) for name, arm, seed in cells]
        for i, (step_s, single_s) in enumerate(pool.imap(run, paths)):
            name, arm, seed = cells[i]
            stages.stage(f"{name}, {arm}, seed {seed}: {1e3 * step_s:.2f} ms")
            found[name][arm].append(step_s)
            found[name]["single_s"] = single_s
    return found


def run(cell):
    """Seconds of the step that a search finds, and of the best single device's."""
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph
    from tfplace.placers.local_search import LocalSearch
    from tfplace.placers.single import Single

    path, arm, seed = cell
    problem = problem_of(OpGraph.load(path), Case(path.stem, TOPOLOGY))
    with only(*ARMS[arm]):
        step_s = best_step_s(problem, LocalSearch(), "local_search", EVALUATIONS, seed)
    return step_s, best_step_s(problem, Single(), "single", problem.num_devices, 0)


@contextlib.contextmanager
def only(critical, scopes, consumers):
    """Without what is not wanted of `tfplace.local_search.moves`."""
    with contextlib.ExitStack() as stack:
        if not critical:
            stack.enter_context(mock.patch("tfplace.local_search.moves._CRITICAL", 0.0))
        if not scopes:
            stack.enter_context(mock.patch("tfplace.group.unit_sets._scopes", return_value=[]))
        if not consumers:
            stack.enter_context(mock.patch("tfplace.group.unit_sets._consumers", return_value=[]))
        yield


def text(found):
    """The table."""
    lines = [
        (name, f"{1e3 * one['single_s']:.1f} ms", *(spread(one[arm], one["single_s"]) for arm in ARMS))
        for name, one in found.items()
    ]
    means = [
        statistics.geometric_mean(statistics.median(one[arm]) / one["single_s"] for one in found.values())
        for arm in ARMS
    ]
    lines.append(("geometric mean", "", *(f"{mean:.3f}" for mean in means)))
    return table(("graph", "single", *ARMS), lines)


if __name__ == "__main__":
    common.run("moves", measure, text)
