"""How many placements a second a policy learns from, alone and with controllers, each in a process with its processors.

python -m research.benchmarks.controllers                   # 5 minutes; rewrites research/data/controllers.json
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path

from absl import app, flags

from tfplace.cli.quiet import load_tensorflow

ROOT = Path(__file__).resolve().parents[2]

GROUPS, EVALUATIONS, ROUNDS = 256, 800, 3
POLICIES = ("seq2seq", "hierarchical")
KINDS = ("alone", "in step", "as they come")

_COUNT = flags.DEFINE_integer("controllers", len(os.sched_getaffinity(0)), "How many.", 1)
_OUT = flags.DEFINE_string("out", str(ROOT / "research" / "data" / "controllers.json"), "Where results are written.")


def main(argv: list[str]) -> None:
    del argv
    load_tensorflow(gpus=False)
    found: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in KINDS} for name in POLICIES}
    for _ in range(ROUNDS):  # in turn, so that a slow minute of the machine is everyone's
        for name in POLICIES:
            for kind in KINDS:
                found[name][kind].append(rate(name, kind))
    facts = {
        "groups": GROUPS,
        "processors": len(os.sched_getaffinity(0)),
        "controllers": _COUNT.value,
        "placements_per_second": found,
    }
    Path(_OUT.value).write_text(json.dumps(facts, indent=1) + "\n")
    for name, kinds in found.items():
        alone = statistics.median(kinds["alone"])
        for kind, rates in kinds.items():
            median = statistics.median(rates)
            spread = f"{min(rates):.0f} to {max(rates):.0f}"
            print(f"{name:<13} {kind:<13} {median:6.0f} placements a second ({spread}), {median / alone:.2f} of alone")


def rate(name: str, kind: str) -> float:
    """Placements a second, once all are at work."""
    import numpy as np

    from tfplace.core.engine import Controllers
    from tfplace.engines.process_workers import ProcessEngine
    from tfplace.registry import PLACERS
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search
    from tfplace.testing.graphs import random_graph
    from tfplace.testing.problems import random_problem

    rng = np.random.default_rng(0)
    graph = random_graph(rng, GROUPS, constants=0.0, cpu_only=0.0, variables=0)
    problem = random_problem(rng, graph=graph, num_devices=5, unit=1e-3)
    seen: list[tuple[int, float]] = []
    controllers = None if kind == "alone" else Controllers(ProcessEngine(_COUNT.value), kind == "as they come")
    search = Search(
        problem,
        Budget(evaluations=EVALUATIONS),
        0,
        controllers=controllers,
        logged=lambda evaluations, metrics: seen.append((evaluations, time.perf_counter())),
    )
    search.run(PLACERS[name](), name)
    settled = len(seen) // 4  # by when every controller is there
    (first, begin), (last, end) = seen[settled], seen[-1]
    return (last - first) / (end - begin)


if __name__ == "__main__":
    app.run(main)
