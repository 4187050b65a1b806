"""How long a plan takes, and how much memory: the reading of its steps, and all that comes after.

    python -m research.benchmarks.planning_time                                        # minutes
    python -m research.benchmarks.planning_time --models=gnmt_8 --budget=60s           # some five minutes
    python -m research.benchmarks.planning_time --page=docs/research/planning_time.md

A plan is made in a process of its own, of a model that is built and whose whole step is read. Reading is what
TensorFlow takes to trace the step for slices, and what tfplace takes to split it. Seconds are those of the processor.
With a budget of a second, what is left is the first table.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

from absl import flags

from research.benchmarks.common import graphs_of, plan_of, run
from tfplace.comparison.tables import table
from tfplace.files import write_whole
from tfplace.formatting import format_bytes
from tfplace.version import versions


def measure(_):
    asked = flags.FLAGS
    out = Path(asked["out"].value)
    found = json.loads(out.read_text())["plans"] if out.exists() else []
    for model in asked.models:
        child = [sys.executable, "-m", __spec__.name, f"--one={model}", f"--budget={asked.budget}"]
        child.append(f"--topology={asked.topology}")
        runs = [json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE).stdout) for _ in range(asked.runs)]
        row = runs[0] | {name: [one[name] for one in runs] for name in ("read_s", "after_s", "peak_bytes")}
        same = ("model", "topology", "budget")
        found = [one for one in found if any(one[name] != row[name] for name in same)]
        found.append(row | {"command": " ".join(["python -m research.benchmarks.planning_time", *sys.argv[1:]])})
        write_whole(out, json.dumps({"plans": found}, indent=1) + "\n")
        print(text({"plans": [row]}), file=sys.stderr, flush=True)
    return {"plans": found}


def measure_one(model, topology, budget):
    """Of this process."""
    from tfplace_zoo import zoo

    from tfplace.core.slices import AUTO
    from tfplace.options import SearchOptions

    graph, read_s = graphs_of(zoo.build(model)), 0.0
    ops = graph(None).num_ops

    def read(sizes, pack=False):
        nonlocal read_s
        began = time.process_time()
        try:
            return graph(sizes, pack)
        finally:
            read_s += time.process_time() - began

    options = SearchOptions(budget=budget, slices=AUTO, topology=topology, progress=False).check()
    began = time.process_time()
    plan = plan_of(read, options)
    whole_s = time.process_time() - began
    return {
        "model": model,
        "topology": topology,
        "budget": budget,
        "ops": ops,
        "rows": len(plan.rows),
        "chosen": None if plan.chosen is None else plan.chosen.name,
        "read_s": round(read_s, 1),
        "after_s": round(whole_s - read_s, 1),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": versions(),
    }


def text(found):
    rows = [
        [
            one["model"],
            f"{one['ops']:,}",
            one["topology"],
            one["budget"],
            str(one["rows"]),
            _least_to_most(one["read_s"]),
            _least_to_most(one["after_s"]),
            format_bytes(max(one["peak_bytes"])),
        ]
        for one in found["plans"]
    ]
    head = ["model", "ops", "topology", "budget", "rows", "reading, processor s", "after it", "most memory"]
    return table(head, rows)


def _least_to_most(seconds):
    return f"{min(seconds):.0f} to {max(seconds):.0f}"


def main():
    flags.DEFINE_list("models", ["inception_v3"], "Models of the zoo.")
    flags.DEFINE_string("topology", "4xP100", "A preset, or a topology file.")
    flags.DEFINE_string("budget", "1s", "Of the search.")
    flags.DEFINE_integer("runs", 3, "Of each model; the table has the least and the most seconds.")
    flags.DEFINE_string("one", None, "A model that is planned in this process, which prints what it took.")
    asked = flags.FLAGS
    asked(sys.argv, known_only=True)
    if asked.one:
        print(json.dumps(measure_one(asked.one, asked.topology, asked.budget)))
    else:
        run("planning_time", measure, text)


if __name__ == "__main__":
    main()
