"""How long a policy takes to draw 16 placements of 256 groups and to learn from them, without evaluating them.

python -m research.benchmarks.policy_steps                  # a minute; rewrites research/data/policy_steps.json
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

GROUPS, BATCH, UPDATES = 256, 16, 12
POLICIES = ("post", "seq2seq", "hierarchical")

_OUT = flags.DEFINE_string("out", str(ROOT / "research" / "data" / "policy_steps.json"), "Where results are written.")


def main(argv: list[str]) -> None:
    del argv
    load_tensorflow(gpus=False)
    results = {name: measure(name) for name in POLICIES}
    facts = {"groups": GROUPS, "batch": BATCH, "processors": len(os.sched_getaffinity(0)), "seconds": results}
    Path(_OUT.value).write_text(json.dumps(facts, indent=1) + "\n")
    for name, (median, low, high) in results.items():
        print(f"{name:<13} {median * 1e3:6.0f} ms an update ({low * 1e3:.0f} to {high * 1e3:.0f})")


def measure(name: str) -> tuple[float, float, float]:
    """Median, least and most seconds of an update; the first two, which are traced, do not count."""
    import numpy as np

    from tfplace.registry import PLACERS
    from tfplace.search.budget import Budget
    from tfplace.search.search import Search
    from tfplace.simulation.evaluate import Simulator
    from tfplace.testing.graphs import random_graph
    from tfplace.testing.problems import random_problem

    rng = np.random.default_rng(0)
    graph = random_graph(rng, GROUPS, constants=0.0, cpu_only=0.0, variables=0)
    problem = random_problem(rng, graph=graph, num_devices=5, unit=1e-3)

    class Timed(Simulator):
        """Puts down when it was asked and when it had answered."""

        asked: list[tuple[float, float]] = []  # noqa: RUF012

        def keys(self, unit_devices, limit_s=np.inf):
            begin = time.perf_counter()
            answer = super().keys(unit_devices, limit_s)
            self.asked.append((begin, time.perf_counter()))
            return answer

    placer = PLACERS[name]()
    placer.settings = with_batch(placer.settings)
    evaluator = Timed(problem)
    Timed.asked = []
    Search(problem, Budget(evaluations=BATCH * UPDATES), 0, evaluator=evaluator).run(placer, name)
    spans = [after[0] - before[1] for before, after in zip(Timed.asked[1:], Timed.asked[2:], strict=False)][1:]
    return statistics.median(spans), min(spans), max(spans)


def with_batch(settings):
    """The same settings with `BATCH` placements an update, and as many groups as there are."""
    import dataclasses

    if hasattr(settings, "train"):
        train = dataclasses.replace(settings.train, batch=BATCH)
        changes = {"train": train} | ({"groups_per_device": GROUPS} if hasattr(settings, "groups_per_device") else {})
        return dataclasses.replace(settings, **changes)
    return dataclasses.replace(settings, batch=BATCH, window=0)


if __name__ == "__main__":
    app.run(main)
