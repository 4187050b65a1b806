"""How much faster is what a plan chooses than what a user would take without a search; all simulated.

    python -m research.benchmarks.plans --models=dlrm,transformer     # minutes a model; all of the zoo takes a day
    python -m research.benchmarks.plans --page=docs/research/plans.md

Every model is planned for each box, with the memory that its devices have and with half of what the step needs on one
of its GPUs, for each seed. The alternatives are the rows of the plan that need no search and no remedy: one device,
MirroredStrategy, data parallelism and pipelines, op by op and compiled, whole and with any number of slices that was
tried, if they fit and can be run; a way on the host's CPU alone counts as nothing. Cells that are there already are
kept; --again plans them anew.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path

from absl import flags

from research.benchmarks.common import graphs_of, plan_of, run
from tfplace.comparison.tables import table
from tfplace.files import write_whole
from tfplace.version import versions

BOXES = ("4xP100", "8xV100-NVLink", "4xA100-NVLink", "2xV100-PCIe+2xP100")
AMPLE, TIGHT = "ample", "tight"
SEARCHED = "placed"
_OWN = ("one device", "MirroredStrategy")
MAY_BE_BEHIND = 1.01
"""Times the best alternative that a plan may take: simpler rows are taken if they are as good."""
LEAVES = 1.2
"""The best alternative over the bound, from which on there is something to gain."""


def measure(_):
    import keras
    from tfplace_zoo import zoo

    from tfplace.core.slices import AUTO
    from tfplace.options import SearchOptions

    asked = flags.FLAGS
    out = Path(asked["out"].value)
    cells = json.loads(out.read_text())["cells"] if out.exists() else []
    for model in asked.models:
        keras.backend.clear_session()
        built = zoo.build(model)
        graph = graphs_of(built)
        for box in asked.boxes:
            for memory in asked.memory:
                for seed in map(int, asked.seeds):
                    key = {"model": model, "box": box, "memory": memory, "seed": seed}
                    if any(key.items() <= cell.items() for cell in cells) and not asked.again:
                        continue
                    options = SearchOptions(
                        budget=asked.budget, seed=seed, slices=AUTO, topology=box, progress=False
                    ).check()
                    cell = key | _planned(graph, options, memory)
                    cell["command"] = " ".join(["python -m research.benchmarks.plans", *sys.argv[1:]])
                    cells = [one for one in cells if not key.items() <= one.items()] + [cell]
                    write_whole(out, json.dumps({"cells": cells}, indent=1) + "\n")
                    print(model, box, memory, seed, _told(cell), file=sys.stderr, flush=True)
    return {"cells": cells}


def _planned(graph, options, memory):
    if memory == TIGHT:
        options = dataclasses.replace(options, max_memory={"GPU:*": _half(graph(None), options.topology)})
    began = time.monotonic()
    plan = plan_of(graph, options)
    takable = [row for row in plan.rows if row.cost.feasible and not row.obstacle]
    plain = [row for row in takable if row.way != SEARCHED and not (row.recomputes or row.host)]
    best = min(plain, key=lambda row: row.cost.step_s, default=None)
    return {
        "chosen": None if plan.chosen is None else plan.chosen.name,
        "chosen_s": None if plan.chosen is None else plan.chosen.cost.step_s,
        "best": None if best is None else best.name,
        "best_s": None if best is None else best.cost.step_s,
        "bound_s": min(row.placement.bound_s for row in plan.rows if row.placement is not None),
        "rows": {row.name: row.cost.step_s for row in takable},
        "seconds": round(time.monotonic() - began, 1),
        "versions": versions(),
    }


def _half(graph, topology):
    """Half of what the step needs on the first GPU."""
    import numpy as np

    from tfplace.simulation.evaluate import Simulator
    from tfplace.sources import formulate

    problem = formulate(graph, topology, max_memory=dict.fromkeys(topology.device_names, "100TiB"))
    first = next(d for d, device in enumerate(topology.devices) if device.type == "GPU")
    alone = np.where(problem.allowed[:, first], first, problem.allowed.argmax(axis=1)).astype(np.int32)
    return int(Simulator(problem)(alone).peak_bytes[first] / 2)


def _told(cell):
    """The chosen step over the best alternative's."""
    if cell["chosen_s"] is None:
        return "nothing fits"
    best_s = _best_s(cell)
    return "alone fits" if best_s is None else f"{cell['chosen_s'] / best_s:.3f}"


def text(found):
    cells = found["cells"]
    kinds = list(dict.fromkeys((cell["box"], cell["memory"]) for cell in cells))
    head = [
        "box",
        "memory",
        "plans",
        "models",
        "behind by over 1 %",
        "geometric mean",
        "with over 20 % to gain",
        "mean",
        "over TensorFlow's own",
    ]
    summary = [[*kind, *_of_kind([one for one in cells if (one["box"], one["memory"]) == kind])] for kind in kinds]
    memories = dict.fromkeys(memory for _, memory in kinds)
    summary += [["all", one, *_of_kind([cell for cell in cells if cell["memory"] == one])] for one in memories]
    summary.append(["all", "both", *_of_kind(cells)])
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    matrix = [
        [
            model,
            *(
                ", ".join(_told(one) for one in cells if (one["model"], one["box"], one["memory"]) == (model, *kind))
                or "-"
                for kind in kinds
            ),
        ]
        for model in models
    ]
    return "\n\n".join([table(head, summary), table(["model", *map(", ".join, kinds)], matrix)])


def _of_kind(cells):
    both = [cell for cell in cells if cell["chosen_s"] is not None and _best_s(cell) is not None]
    gains = [cell for cell in both if _best_s(cell) > LEAVES * cell["bound_s"]]
    behind = [cell for cell in both if cell["chosen_s"] > MAY_BE_BEHIND * _best_s(cell)]
    return [
        str(len(cells)),
        str(len({cell["model"] for cell in cells})),
        str(len(behind)),
        _mean(both),
        str(len(gains)),
        _mean(gains),
        _mean(cells, _own_s),
    ]


def _best_s(cell):
    """What the best way without a search takes; None where nothing but the host's CPU is left of these."""
    return None if cell["best"] is None or _is_on_cpu(cell["best"]) else cell["best_s"]


def _own_s(cell):
    """What TensorFlow's own ways take, one GPU or MirroredStrategy; None where they do not fit."""
    own = {name: took for name, took in cell["rows"].items() if name.startswith(_OWN) and "slices" not in name}
    return min((took for name, took in own.items() if not _is_on_cpu(name)), default=None)


def _is_on_cpu(name):
    return "(CPU" in name


def _mean(cells, other_s=_best_s):
    """Geometric mean of the chosen steps over other ones, where there are both."""
    both = [(cell["chosen_s"], other_s(cell)) for cell in cells]
    ratios = [chosen / other for chosen, other in both if chosen is not None and other is not None]
    return f"{statistics.geometric_mean(ratios):.3f}" if ratios else "-"


if __name__ == "__main__":
    flags.DEFINE_list("models", ["wide_mlp", "two_tower", "dlrm", "transformer"], "Models of the zoo.")
    flags.DEFINE_list("boxes", list(BOXES), "Presets, or topology files.")
    flags.DEFINE_list("memory", [AMPLE, TIGHT], "Of the GPUs.")
    flags.DEFINE_list("seeds", ["0"], "Of the searches.")
    flags.DEFINE_string("budget", "10s", "Of each plan's search.")
    flags.DEFINE_bool("again", False, "Plan what is there already anew.")
    run("plans", measure, text)
