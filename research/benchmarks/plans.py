"""How much faster is what a plan chooses than what a user would take without a search; all simulated.

    python -m research.benchmarks.plans                               # six models on four P100s; half an hour
    python -m research.benchmarks.plans --models=dlrm --topology=2xV100-PCIe+2xP100   # what is kept of others stays
    python -m research.benchmarks.plans --page=docs/plan.md

The alternatives are the rows of the plan itself that need no search: one device, MirroredStrategy, data parallelism and
pipelines, op by op and compiled where the plan has both, if they fit and can be run. "Seconds" are of the whole plan,
reading the model for each number of slices included.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from absl import flags

from research.benchmarks.common import run
from tfplace.comparison.tables import table
from tfplace.formatting import format_seconds
from tfplace.version import versions

MODELS = ("inception_v3", "resnet50", "transformer", "dlrm", "gpt", "moe")
SEARCHED = "placed"


def measure(_):
    import keras
    from tfplace_zoo import zoo

    import tfplace

    asked = flags.FLAGS
    out = Path(asked["out"].value)
    found = json.loads(out.read_text())["plans"] if out.exists() else []
    for name in asked.models:
        keras.backend.clear_session()
        built = zoo.build(name)
        began = time.monotonic()
        plan = tfplace.plan(
            built.model, asked.topology, batch=built.batch, budget=asked.budget, seed=asked.seed, progress=False
        )
        row = {
            "model": name,
            "topology": asked.topology,
            "command": " ".join(["python -m research.benchmarks.plans", *sys.argv[1:]]),
            "versions": versions(),
            "seconds": round(time.monotonic() - began, 1),
            "chosen": None if plan.chosen is None else plan.rows.index(plan.chosen),
            "bound_s": min(one.placement.bound_s for one in plan.rows if one.placement is not None),
            "rows": [
                {
                    "name": one.name,
                    "way": one.way,
                    "step_s": one.cost.step_s,
                    "takable": one.cost.feasible and not one.obstacle,
                }
                for one in plan.rows
            ],
        }
        found = [one for one in found if (one["model"], one["topology"]) != (name, asked.topology)] + [row]
        print(text({"plans": [row]}), file=sys.stderr, flush=True)
    return {"plans": found}


def text(found):
    rows = []
    for plan in found["plans"]:
        takable = [row for row in plan["rows"] if row["takable"]]
        others = [row for row in takable if row["way"] != SEARCHED]
        chosen = None if plan["chosen"] is None else plan["rows"][plan["chosen"]]
        best = min(others, key=lambda row: row["step_s"], default=None)
        rows.append(
            [
                plan["model"],
                plan["topology"],
                "nothing fits" if chosen is None else f"{chosen['name']}, {format_seconds(chosen['step_s'])}",
                "-" if best is None else f"{best['name']}, {format_seconds(best['step_s'])}",
                "-" if best is None or chosen is None else f"{chosen['step_s'] / best['step_s']:.3f}",
                "-" if chosen is None else f"{chosen['step_s'] / plan['bound_s']:.2f}",
                f"{plan['seconds']:.0f}",
            ]
        )
    head = ["model", "box", "chosen", "best without a search", "over that", "over the bound", "seconds"]
    return table(head, rows)


if __name__ == "__main__":
    flags.DEFINE_list("models", list(MODELS), "Models of the zoo.")
    flags.DEFINE_string("topology", "4xP100", "A preset, or a topology file.")
    flags.DEFINE_string("budget", "30s", "Of each plan's search.")
    flags.DEFINE_integer("seed", 0, "Of the searches.")
    run("plans", measure, text)
