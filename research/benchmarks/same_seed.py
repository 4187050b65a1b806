"""Whether a placer that learns finds the same again: `gdp_scratch` on NASNet, on one core and on all.

    python -m research.benchmarks.same_seed --graphs=out/graphs             # four minutes; rewrites same_seed.json
    python -m research.benchmarks.same_seed --page=docs/research/repeatable.md     # puts its table there

Runs with one seed and equal evaluations, each in a process of its own, and in how many ways the gradients of one and
the same thing come out of one process. The graph is that of `python scripts/make_zoo.py --graphs=out/graphs`. Steps are
simulated.
"""

from __future__ import annotations

import multiprocessing
import os

from research.benchmarks import common
from tfplace.cli.quiet import load_tensorflow
from tfplace.comparison.tables import table
from tfplace.report.progress import Stages

GRAPH, TOPOLOGY, PLACER, EVALUATIONS, RUNS, GRADIENTS = "nasnet", "4xP100", "gdp_scratch", 120, 3, 8


def measure(graphs):
    """Number of cores -> the steps of some runs, and how many gradients of the same there are."""
    path, cores = graphs / f"{GRAPH}.npz", sorted(os.sched_getaffinity(0))
    found = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool, Stages(quiet=False) as stages:
        for these in (cores[:1], cores):
            stages.stage(f"on {len(these)} cores")
            steps = [pool.apply(step_s, (path, these)) for _ in range(RUNS)]
            found[str(len(these))] = {"step_s": steps, "gradients": pool.apply(gradients, (path, these))}
    return found


def _problem(path, cores):
    os.sched_setaffinity(0, cores)  # before TensorFlow counts them
    load_tensorflow(gpus=False)
    from tfplace.comparison.cells import Case, problem_of
    from tfplace.core.graph import OpGraph

    return problem_of(OpGraph.load(path), Case(GRAPH, TOPOLOGY))


def step_s(path, cores):
    """Seconds of the step that a run finds."""
    from research.benchmarks.common import best_step_s
    from tfplace.registry import PLACERS

    return best_step_s(_problem(path, cores), PLACERS[PLACER](), PLACER, EVALUATIONS, 0)


def gradients(path, cores):
    """How many different gradients of the same come out."""
    problem = _problem(path, cores)
    import numpy as np

    from tfplace.learned.features.graph_inputs import graph_inputs
    from tfplace.learned.policies.gdp import GdpSettings, network_of

    settings = GdpSettings()
    inputs, network = graph_inputs(problem, None, settings.lean), network_of(settings, np.random.default_rng(0))
    by_logits = np.random.default_rng(1).normal(size=network.logits(inputs).shape).astype(np.float32)
    return len({b"".join(g.numpy().tobytes() for g in network.gradients(inputs, by_logits)) for _ in range(GRADIENTS)})


def text(found):
    """The table."""
    head = ("cores", f"steps of {RUNS} runs of {PLACER}, one seed", f"different gradients of {GRADIENTS}")
    lines = [
        (cores, ", ".join(f"{1e3 * s:.2f} ms" for s in one["step_s"]), str(one["gradients"]))
        for cores, one in found.items()
    ]
    return table(head, lines)


if __name__ == "__main__":
    common.run("same_seed", measure, text)
