"""Does a plan fit where each GPU has a quarter of the memory that the step needs on one; all simulated.

    python -m research.benchmarks.tight_plans --models=two_tower,dlrm    # minutes a model; the zoo takes hours
    python -m research.benchmarks.tight_plans --page=docs/research/tight_memory.md

The host keeps its memory. A way on the host's CPU alone counts as nothing. "Over ample" is the step over the chosen
one's of the same plan with the devices' own memory. Models that are there already are kept; --again plans them anew.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from absl import flags

from research.benchmarks.common import graphs_of, plan_of, run
from tfplace.comparison.tables import table
from tfplace.core.plan import ALONE
from tfplace.files import write_whole
from tfplace.formatting import format_bytes, format_seconds
from tfplace.version import versions

PART = 4
"""Each GPU has such a part of what the step needs on one."""


def measure(_):
    import keras
    from tfplace_zoo import zoo

    import tfplace
    from tfplace.report.step_memory import step_memory

    asked = flags.FLAGS
    out = Path(asked["out"].value)
    found = json.loads(out.read_text())["models"] if out.exists() else []
    for model in asked.models or sorted(zoo.names(), key=lambda name: zoo.facts()[name]["ops"]):
        if any(one["model"] == model for one in found) and not asked.again:
            continue
        keras.backend.clear_session()
        built = zoo.build(model)
        graph = graphs_of(built)
        peak = step_memory(tfplace.formulate(graph(None), asked.topology), None).peak_bytes
        ample, _ = planned(graph, asked, None)
        tight, seconds = planned(graph, asked, {"GPU:*": peak // PART})
        row = {
            "model": model,
            "command": " ".join(["python -m research.benchmarks.tight_plans", *sys.argv[1:]]),
            "versions": versions(),
            "seconds": round(seconds, 1),
            "limit_bytes": peak // PART,
            "ample": told(ample.chosen),
            "tight": told(tight.chosen),
            "nearest": None if tight.chosen is not None else tight.rows[0].name,
        }
        found = sorted([one for one in found if one["model"] != model] + [row], key=lambda one: one["model"])
        write_whole(out, json.dumps({"models": found}, indent=1) + "\n")
        print(text({"models": [row]}), file=sys.stderr, flush=True)
    return {"models": found}


def planned(graph, asked, max_memory):
    """The plan, and the seconds that it takes once the step is read for a number of slices."""
    from tfplace.core.slices import AUTO
    from tfplace.options import SearchOptions

    options = SearchOptions(
        budget=asked.budget, slices=AUTO, topology=asked.topology, max_memory=max_memory, progress=False
    ).check()
    began = time.monotonic()
    return plan_of(graph, options), time.monotonic() - began


def told(row):
    """The chosen way; None for none, and for the host's CPU alone."""
    if row is None or (row.way == ALONE and "(CPU" in row.name):
        return None
    return {"name": row.name, "step_s": row.cost.step_s, "remedies": list(row.remedies), "slices": len(row.slices)}


def text(found):
    rows = []
    for one in found["models"]:
        ample, tight = one["ample"], one["tight"]
        over = "-" if ample is None or tight is None else f"{tight['step_s'] / ample['step_s']:.2f}"
        rows.append(
            [
                one["model"],
                format_bytes(one["limit_bytes"]),
                "nothing" if ample is None else f"{ample['name']}, {format_seconds(ample['step_s'])}",
                "nothing" if tight is None else f"{tight['name']}, {format_seconds(tight['step_s'])}",
                over,
                f"{one['seconds']:.0f}",
            ]
        )
    return table(["model", "of each GPU", "with ample memory", "with a quarter", "over ample", "seconds"], rows)


if __name__ == "__main__":
    flags.DEFINE_list("models", [], "Models of the zoo; all by default, those with the fewest ops first.")
    flags.DEFINE_string("topology", "4xP100", "A preset, or a topology file.")
    flags.DEFINE_string("budget", "10s", "Of each plan's search.")
    flags.DEFINE_bool("again", False, "Plan models anew that are there already.")
    run("tight_plans", measure, text)
