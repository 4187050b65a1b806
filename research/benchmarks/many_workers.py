"""Does `auto` on two workers find in half the time what it finds on one core?

    python scripts/make_zoo.py --nofacts --graphs=out/graphs \
        --only=inception_v3,nmt_2,resnet50,rnnlm_2,rnnlm_4,transformer,transformer_xl_4,wavenet_2x18
    python -m research.benchmarks.many_workers               # 36 minutes of two cores; rewrites many_workers.json
    python -m research.benchmarks.many_workers --seconds=5   # a sixth of the budgets
    python -m research.benchmarks.many_workers --page=docs/research/many_workers.md

The one core is that of this process, which is pinned to it for that. Steps are simulated, on 4xP100. A cell that is in
the file is not run again: stopped, the same command goes on.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from absl import flags

from research.benchmarks.common import run
from tfplace.comparison.tables import table
from tfplace.files import write_whole

GRAPHS = (
    "inception_v3",
    "nmt_2",
    "resnet50",
    "rnnlm_2",
    "rnnlm_4",
    "transformer",
    "transformer_xl_4",
    "wavenet_2x18",
)
TOPOLOGY, SEEDS, WORKERS = "4xP100", 3, 2
ALONE, TOGETHER = "one core", "two workers"
WORSE = 1.02
"""Of the step on one core in twice the time: a cell with a longer one is named."""


def measure(graphs: Path) -> dict[str, Any]:
    """Runs the cells that the file lacks, and writes it after each."""
    from tfplace import Topology
    from tfplace.core.constraints import Constraints
    from tfplace.core.graph import OpGraph
    from tfplace.cost.analytic import analytic_costs
    from tfplace.group.problem import formulate
    from tfplace.version import versions

    path, seconds = Path(flags.FLAGS["out"].value), flags.FLAGS.seconds
    facts = {"topology": TOPOLOGY, "seconds": seconds, "workers": WORKERS, "versions": versions(), "cells": []}
    if path.exists():
        before = json.loads(path.read_text())
        if before["seconds"] == seconds:
            facts["cells"] = before["cells"]
    cells: list[dict[str, Any]] = facts["cells"]
    known = {(cell["graph"], cell["seed"], cell["arm"]) for cell in cells}
    topology = Topology.load(TOPOLOGY)
    for name in GRAPHS:
        graph = OpGraph.load(graphs / f"{name}.npz")
        problem = formulate(graph, topology, analytic_costs(graph, topology), Constraints())
        for seed in range(SEEDS):
            for arm in (ALONE, TOGETHER):  # one after the other, so that a slow minute of the machine is both's
                if (name, seed, arm) in known:
                    continue
                cells.append({"graph": name, "seed": seed, "arm": arm} | cell(problem, seed, arm, seconds))
                print(cells[-1], flush=True)
                write_whole(path, json.dumps(facts, indent=1) + "\n")
    return facts


def cell(problem: Any, seed: int, arm: str, seconds: float) -> dict[str, Any]:
    """The step that is found, and the seconds from the call to the answer."""
    import tfplace

    cores = os.sched_getaffinity(0)
    options = {"seed": seed, "baselines": (), "progress": False}
    try:
        if arm == ALONE:
            os.sched_setaffinity(0, {min(cores)})
            options["budget"] = 2 * seconds
        else:
            options |= {"budget": seconds, "engine": f"processes:{WORKERS}"}
        begun = time.perf_counter()
        placed = tfplace.place(problem, **options)
    finally:
        os.sched_setaffinity(0, cores)
    return {"step_s": placed.cost.step_s, "wall_s": round(time.perf_counter() - begun, 2), "notes": placed.notes}


def text(found: dict[str, Any]) -> str:
    """Ratios by graph, of all, and the cells that are behind."""
    steps = {(c["graph"], c["seed"], c["arm"]): c["step_s"] for c in found["cells"]}
    pairs = sorted({(graph, seed) for graph, seed, _ in steps})
    ratios = {
        (graph, seed): steps[graph, seed, TOGETHER] / steps[graph, seed, ALONE]
        for graph, seed in pairs
        if {(graph, seed, ALONE), (graph, seed, TOGETHER)} <= {*steps}
    }
    rows = []
    for name in sorted({graph for graph, _ in ratios}):
        ours = [ratio for (graph, _), ratio in ratios.items() if graph == name]
        rows.append((name, f"{statistics.geometric_mean(ours):.3f}", f"{min(ours):.3f}", f"{max(ours):.3f}"))
    rows.append(("all", f"{statistics.geometric_mean(ratios.values()):.3f}", "", ""))
    behind = [f"{graph}, seed {seed}: {r:.3f}" for (graph, seed), r in ratios.items() if r > WORSE]
    seconds = f"{found['seconds']:g} s on {found['workers']} workers over {2 * found['seconds']:g} s on one core"
    lines = [table(("graph", f"step, {seconds}", "least", "most"), rows), ""]
    walls = [statistics.median(c["wall_s"] for c in found["cells"] if c["arm"] == arm) for arm in (TOGETHER, ALONE)]
    lines += ["From call to answer it took {:.0f} s and {:.0f} s, with the start of the workers.".format(*walls), ""]
    lines.append(f"Cells above {WORSE}: {'; '.join(behind) if behind else 'none'}.")
    return "\n".join(lines)


if __name__ == "__main__":
    flags.DEFINE_float("seconds", 30.0, "Budget of two workers; one core has twice as much.", 0.1)
    run("many_workers", measure, text)
