"""Whether a placer that learns finds the same again: `gdp_scratch` on NASNet, on one core and on all.

    python benchmarks/same_seed.py --graphs=out/graphs             # five minutes; rewrites same_seed.json
    python benchmarks/same_seed.py --page=docs/reproduction.md     # puts the table of same_seed.json there

Runs with one seed and equal evaluations, each in a process of its own, and in how many ways the gradients of one and
the same thing come out of one process. The graph is that of `python scripts/make_zoo.py --graphs=out/graphs`. Steps are
simulated.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path

from absl import app, flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.cli.quiet import load_tensorflow  # noqa: E402
from tfplace.cli.scripts import script  # noqa: E402
from tfplace.compare.tables import Page, table  # noqa: E402
from tfplace.core.files import check_writable, write_whole, writing  # noqa: E402
from tfplace.report.progress import Stages  # noqa: E402

GRAPH, TOPOLOGY, PLACER, EVALUATIONS, RUNS, GRADIENTS = "nasnet", "4xP100", "gdp_scratch", 120, 3, 8

_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "graphs"), "Directory of the graphs.")
_OUT = flags.DEFINE_string("out", str(ROOT / "benchmarks" / "same_seed.json"), "The results.")
_PAGE = flags.DEFINE_string("page", None, "A page whose table is rewritten; nothing is run.")


def main(argv: list[str]) -> None:
    with script(argv):
        _measure()


def _measure():
    out = Path(_OUT.value)
    if _PAGE.value:
        Page(_PAGE.value, "same-seed").write(text(json.loads(out.read_text())))
        return
    check_writable(out)
    path, cores = Path(_GRAPHS.value) / f"{GRAPH}.npz", sorted(os.sched_getaffinity(0))
    found = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool, Stages(quiet=False) as stages:
        for these in (cores[:1], cores):
            stages.stage(f"on {len(these)} cores")
            steps = [pool.apply(step_s, (path, these)) for _ in range(RUNS)]
            found[str(len(these))] = {"step_s": steps, "gradients": pool.apply(gradients, (path, these))}
    with writing(out):
        write_whole(out, json.dumps(found, indent=1) + "\n")
    print(text(found))


def _problem(path, cores):
    os.sched_setaffinity(0, cores)  # before TensorFlow counts them
    load_tensorflow(gpus=False)
    from tfplace.compare.cells import Case, problem_of
    from tfplace.core.graph import OpGraph

    return problem_of(OpGraph.load(path), Case(GRAPH, TOPOLOGY))


def step_s(path, cores):
    """Seconds of the step that a run finds."""
    from variants import best_step_s

    from tfplace.registry import PLACERS

    return best_step_s(_problem(path, cores), PLACERS[PLACER](), PLACER, EVALUATIONS, 0)


def gradients(path, cores):
    """How many different gradients of the same come out."""
    problem = _problem(path, cores)
    import numpy as np

    from tfplace.learning.graph_inputs import graph_inputs
    from tfplace.policies.gdp import GdpSettings, network_of

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
    app.run(main)
