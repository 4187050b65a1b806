"""How steps scale from 1 to 64 devices: what a plan chooses beside pure data parallelism; all simulated.

    python -m research.benchmarks.scaling                       # tens of minutes a model; inception_v3 first
    python -m research.benchmarks.scaling --models=gnmt_8 --devices=1,64
    python -m research.benchmarks.scaling --models=             # draws docs/research/scaling.png anew
    python -m research.benchmarks.scaling --page=docs/research/scaling.md

Devices are the first of 8x8xA100-NVLink: of one host up to 8, then hosts. Every number of devices is planned as equal
replicas, few ones too. In weak scaling each device has the same number of examples, in strong scaling the whole step
has. Pure data parallelism is one replica on each device, the faster of op by op and compiled.

Steps that are read for several cells are read once, and their seconds counted for each cell, as if a plan were made
alone. The most memory is that of the process up to then. Cells that are there already are kept.
"""

from __future__ import annotations

import functools
import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from absl import flags

from research.benchmarks.common import ROOT, run
from tfplace.comparison.tables import table
from tfplace.files import write_whole
from tfplace.formatting import format_bytes, format_seconds
from tfplace.version import versions

BOX = "8x8xA100-NVLink"
COUNTS = (1, 2, 4, 8, 16, 32, 64)
WEAK, STRONG = "weak", "strong"
EXAMPLES = {"inception_v3": (64, 256), "gnmt_8": (64, 256), "bert_large": (8, 64)}
"""Model -> examples of each device in weak scaling, and of the whole step in strong scaling."""
PICTURE = ROOT / "docs" / "research" / "scaling.png"


def measure(_):
    import keras

    asked = flags.FLAGS
    out = Path(asked["out"].value)
    cells = json.loads(out.read_text())["cells"] if out.exists() else []
    for model in asked.models:
        asked_of = [key for key in keys(model) if str(key["devices"]) in asked.devices]
        left = [key for key in asked_of if not any(key.items() <= cell.items() for cell in cells)]
        if not left:
            continue
        keras.backend.clear_session()
        reader = _Reader(model)
        for key in left:
            cell = key | _planned(reader, key)
            cell["command"] = " ".join(["python -m research.benchmarks.scaling", *sys.argv[1:]])
            cells.append(cell)
            write_whole(out, json.dumps({"cells": cells}, indent=1) + "\n")
            print(" ".join(map(str, key.values())), _told(cell), file=sys.stderr, flush=True)
    _draw(cells)
    return {"cells": cells}


def keys(model):
    """What tells the cells of a model from one another; with one device weak and strong scaling differ in the batch."""
    each, whole = EXAMPLES[model]
    return [
        {"model": model, "scaling": scaling, "devices": count, "batch": each * count if scaling == WEAK else whole}
        for scaling in (WEAK, STRONG)
        for count in COUNTS
    ]


class _Reader:
    """Reads the steps of a model, each once."""

    def __init__(self, model):
        from tfplace_zoo import zoo

        built = zoo.build(model)
        self.source, self.batch, self.used = built.model, built.batch, {}
        self._read = functools.cache(self._timed)

    def _timed(self, examples, slices):
        from tfplace.sources import extract, resized_batch
        from tfplace.transforms.split import slice_sizes

        began = _clocks()
        graph = extract(
            self.source, resized_batch(self.source, self.batch, examples), slices=slice_sizes(slices, examples)
        )
        # Programs of all steps together would take gigabytes, and none is run here.
        return replace(graph, origin=None), _since(began)

    def read(self, examples, slices):
        graph, took = self._read(examples, slices)
        self.used[examples, slices] = took
        return graph


def _clocks():
    return time.monotonic(), time.process_time()


def _since(began):
    return tuple(now - then for now, then in zip(_clocks(), began, strict=True))


def _planned(reader, key):
    from tfplace.api import place_problem
    from tfplace.options import SearchOptions
    from tfplace.search.symmetric import make_symmetric_plan
    from tfplace.sources import formulate

    options = SearchOptions(budget=flags.FLAGS.budget, seed=0, compile="auto", progress=False).check()
    before, reader.used = dict.fromkeys(reader.used), {}
    began = _clocks()
    plan = make_symmetric_plan(
        reader.read,
        formulate,
        functools.partial(place_problem, both_ways=False),
        options,
        hosts_of(key["devices"]),
        examples=key["batch"],
    )
    own = _since(began)
    shared = [took for read, took in reader.used.items() if read in before]
    seconds, processor_s = (own[i] + sum(took[i] for took in shared) for i in range(2))
    takable = [row for row in plan.rows if row.cost.feasible and not row.obstacle]
    parallel = [row for row in takable if row.replicas == key["devices"] and len(row.slices) == 1]
    parallel = [row.cost.step_s for row in parallel if row.way in ("data_parallel", "one device")]
    return {
        "chosen": None if plan.chosen is None else plan.chosen.name,
        "chosen_s": None if plan.chosen is None else plan.chosen.cost.step_s,
        "data_parallel_s": min(parallel, default=None),
        "rows": {row.name: row.cost.step_s for row in takable},
        "notes": list(plan.notes[:-1]),
        "seconds": round(seconds, 1),
        "processor_s": round(processor_s, 1),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "versions": versions(),
    }


def hosts_of(count):
    """The first devices of the box: of one host, or all of some hosts."""
    import numpy as np

    from tfplace.core.topology import Topology
    from tfplace.search.symmetric import large_box
    from tfplace.simulation.replicas import Hosts

    box = large_box(Topology.load(BOX))
    size = min(count, box.size)
    hosts, inside = -(-count // box.size), size
    chosen = [[int(box.cpu[h]), *box.devices[h, :inside].tolist()] for h in range(hosts)]
    topology = box.topology.part(sorted(d for host in chosen for d in host), f"{count} of {BOX}")
    number = [[topology.index(box.topology.device_names[d]) for d in host] for host in chosen]
    return Hosts(
        topology, np.array([host[1:] for host in number], np.int32), np.array([h[0] for h in number], np.int32)
    )


def _told(cell):
    """What was chosen and what planning took."""
    took = f"{cell['seconds']:.0f} s, {cell['processor_s']:.0f} s of processors, {format_bytes(cell['peak_bytes'])}"
    return f"{cell['chosen']}, {took}"


def text(found):
    cells = _by_key(found["cells"])
    head = [
        "model",
        "scaling",
        "devices",
        "batch",
        "plan",
        "step",
        "examples/s",
        "over one device",
        "data parallel over plan",
        "planning, processor s",
        "memory up to then",
    ]
    rows, missing = [], {}
    for model in EXAMPLES:
        for key in keys(model):
            cell = cells.get((model, key["scaling"], key["devices"]))
            if cell is None:
                missing.setdefault(f"{model}, {key['scaling']}", []).append(str(key["devices"]))
                continue
            start = [model, key["scaling"], str(key["devices"]), str(key["batch"])]
            rows.append([*start, *_row(cell, cells.get((model, key["scaling"], 1)))])
    lines = [f"Not finished: {of} scaling over {', '.join(counts)} devices." for of, counts in missing.items()]
    return "\n\n".join([table(head, rows), *lines])


def _row(cell, one):
    memory = format_bytes(cell["peak_bytes"])
    if cell["chosen_s"] is None:
        return ["nothing fits", "-", "-", "-", "-", f"{cell['processor_s']:.0f}", memory]
    gain = "-" if one is None or not one["chosen_s"] else f"{_rate(cell) / _rate(one):.2f}"
    beside = "none" if cell["data_parallel_s"] is None else f"{cell['data_parallel_s'] / cell['chosen_s']:.3f}"
    name = cell["chosen"].replace("/job:worker/task:0/device:", "")
    rate = f"{_rate(cell):,.0f}"
    return [name, format_seconds(cell["chosen_s"]), rate, gain, beside, f"{cell['processor_s']:.0f}", memory]


def _rate(cell, step="chosen_s"):
    """Examples a second."""
    return cell["batch"] / cell[step]


def _by_key(cells):
    return {(cell["model"], cell["scaling"], cell["devices"]): cell for cell in cells}


def _draw(cells):
    from research.tables.plots import scaling_curves

    cells = _by_key(cells)
    panels = {}
    for model in EXAMPLES:
        curves = {}
        for scaling in (WEAK, STRONG):
            for name, step in (("plan", "chosen_s"), ("data parallel", "data_parallel_s")):
                of = [cells[key] for n in COUNTS if (key := (model, scaling, n)) in cells and cells[key][step]]
                if of:
                    curves[f"{scaling}, {name}"] = [(cell["devices"], _rate(cell, step)) for cell in of]
        if curves:
            panels[model] = curves
    if panels:
        scaling_curves(PICTURE, panels, axes=("devices", "examples/s (simulated)"))


if __name__ == "__main__":
    flags.DEFINE_list("models", list(EXAMPLES), "Models of the zoo.")
    flags.DEFINE_list("devices", list(map(str, COUNTS)), "Numbers of them.")
    flags.DEFINE_string("budget", "5s", "Of each plan's search.")
    run("scaling", measure, text)
