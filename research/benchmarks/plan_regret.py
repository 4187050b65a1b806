"""Does a plan choose what is really fastest, and does a step need no more memory than planned?

For each model, training steps are planned for two one-core workers of this machine: unsplit and in two and four slices,
with costs of a profile of each graph (as by `tfplace profile --compiled`) and a calibrated topology. Then every row
with a placement is run on the workers, in turns with the unsplit step on one of them. The regret is the chosen row's
measured step over the fastest one's; "op by op" is the same among rows that are not compiled, where the choice is the
one with the shortest simulated step. That choice is also taken where MirroredStrategy is chosen, which two processes
cannot run. Nothing is fitted to the measured steps.

Memory is compared op by op: what a worker's ops hold at most, of several traced steps, with the weights and arguments
that are there before, over the simulated peak; tensors that a worker receives are not recorded.

    python -m research.benchmarks.plan_regret                        # some forty minutes
    python -m research.benchmarks.plan_regret --models=cnn,wide_mlp  # what is kept of the others stays

The machine should do nothing else meanwhile, and have two cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import sys
from pathlib import Path

import numpy as np
from absl import flags

from research.benchmarks.common import run
from research.benchmarks.pipeline_orders import held_bytes
from tfplace.comparison.tables import table
from tfplace.core.compilation import NONE
from tfplace.files import write_whole
from tfplace.version import versions

MODELS = ("cnn", "transformer", "lstm", "embedding_mlp", "wide_mlp", "two_tower")
OF_ZOO = {"wide_mlp": {"batch": 128}, "two_tower": {"batch": 128}}
SLICES = (None, 2, 4)
_TRACED = 3
_LIMIT_S = 90.0
"""Seconds that the turns of a model may take."""


def measure(_):
    from research.benchmarks.slices_running.losses import use_two_devices

    use_two_devices()
    from tfplace.measurement.backends.cluster import Cluster
    from tfplace.measurement.calibration.calibrate import calibrate

    asked = flags.FLAGS
    out = Path(asked["out"].value)
    found = {one["model"]: one for one in json.loads(out.read_text())["models"]} if out.exists() else {}
    with Cluster.start(2) as cluster:
        _tell("calibrating")
        topology = calibrate(cluster).topology
        for name in asked.models:
            how = {
                "command": " ".join(["python -m research.benchmarks.plan_regret", *sys.argv[1:]]),
                "versions": versions(),
                "machine": f"{os.cpu_count()} cores, {platform.machine()}",
                "turns": asked.turns,
            }
            found[name] = {"model": name, **_study(name, topology, cluster), **how}
            write_whole(out, json.dumps({"models": list(found.values())}, indent=1) + "\n")
            _tell(text({"models": [found[name]]}))
    return {"models": [found[name] for name in MODELS if name in found]}


def _study(name, topology, cluster):
    """What the rows of a model's plan were simulated to take and took."""
    from research.benchmarks.slices_running.running import start, take_turns
    from research.benchmarks.slices_running.variants import Variant
    from tfplace.measurement.protocol.interference import ProcessorWatch

    plan, batch = _plan(name, topology)
    rows = {row.name: row for row in plan.rows if row.placement is not None and row.cost.feasible and not row.obstacle}
    reference = next(row.name for row in rows.values() if row.way == "one device" and row.compile == NONE)
    with contextlib.ExitStack() as opened:
        steps = {}
        for row in rows.values():
            _tell(f"{name}: {row.name}")
            variant = Variant(row.name, row.placement, {})
            steps[row.name] = opened.enter_context(contextlib.closing(start(variant, cluster, batch)))
        _tell(f"{name}: measuring")
        watch = ProcessorWatch(cluster.pids, cluster.cores)
        turns = flags.FLAGS.turns
        took = take_turns(
            steps, steps[reference], watch, cluster.failure_of, turns=turns, limit_s=_LIMIT_S, seed=flags.FLAGS.seed
        )
        held = {one: _held(steps[one], row, cluster.devices) for one, row in rows.items() if row.compile == NONE}
    return {
        "chosen": None if plan.chosen is None else plan.chosen.name,
        "reference": reference,
        "rows": {
            one: {
                "simulated_s": row.cost.step_s,
                "peak_bytes": row.cost.peak_bytes.tolist(),
                "held_bytes": held.get(one),
                **took[one].to_dict(turns),
            }
            for one, row in rows.items()
        },
    }


def _plan(name, topology):
    import keras
    from tfplace_zoo import zoo

    import tfplace
    from research.benchmarks.slices_running.models import build
    from research.benchmarks.slices_running.variants import profiles_of
    from tfplace.api import place_problem
    from tfplace.core.slices import AUTO
    from tfplace.cost.profile import Profile
    from tfplace.options import SearchOptions
    from tfplace.search.planning import make_plan
    from tfplace.sources import made_to_fit

    keras.backend.clear_session()
    if name in OF_ZOO:
        built = zoo.build(name, **OF_ZOO[name])
        model, batch = built.model, built.batch
    else:
        model, batch = build(name, keras)
    graphs = {k: tfplace.extract(model, batch, slices=k) for k in SLICES}
    profiles = profiles_of(graphs, batch, topology, 2, _tell, compiled=flags.FLAGS.compiled)
    problems = {k: tfplace.formulate(graphs[k], topology, profile=Profile((profiles[k],))) for k in SLICES}
    options = SearchOptions(budget="20s", seed=flags.FLAGS.seed, slices=AUTO, topology=topology, progress=False)
    plan = make_plan(
        lambda sizes: problems[sizes],
        lambda problem, options: place_problem(problem, options, both_ways=False),
        options.check(),
        made_to_fit,
    )
    return plan, batch


def _held(running, row, devices):
    """By device the most bytes held: weights and arguments, and what ops hold in the median of several steps."""
    graph = row.placement.problem.graph
    size = graph.persistent_bytes.copy()
    for t, v in enumerate(graph.tensor_op.tolist()):
        if graph.op_types[v] == "Placeholder" and graph.tensor_dtype[t] != "resource":
            size[v] += graph.tensor_bytes[t]
    kept = np.bincount(row.placement.op_device, size, len(devices)).astype(np.int64)
    peaks = [held_bytes(running.traced(), devices) for _ in range(_TRACED)]
    return [int(kept[d] + statistics.median(peak)) for d, peak in enumerate(zip(*peaks, strict=True))]


def _tell(what):
    print(what, file=sys.stderr, flush=True)


def text(found):
    rows = []
    for one in found["models"]:
        step = {
            name: statistics.median(row["measured"]) for name, row in one["rows"].items() if len(row["measured"]) > 0
        }
        seconds = {name: statistics.median(one["rows"][name]["measured_s"]) for name in step}
        taken = _taken(one, step)
        fastest = min(step, key=step.__getitem__)
        errors = [abs(one["rows"][name]["simulated_s"] / seconds[name] - 1) for name in step]
        rows.append(
            [
                one["model"],
                str(len(step)),
                str(one["chosen"]) + ("" if taken == one["chosen"] else f" (run: {taken})"),
                fastest,
                f"{step[taken] / step[fastest]:.2f}",
                _op_by_op(one, step),
                f"{step[taken] / _plain(one, step):.2f}",
                f"{statistics.median(errors):.1%}",
                _memory(one),
            ]
        )
    head = [
        "model",
        "rows",
        "chosen",
        "fastest",
        "regret",
        "op by op",
        "over one worker",
        "median error",
        "held over simulated",
    ]
    return table(head, rows)


def _taken(one, step):
    """The chosen row; where that is TensorFlow's strategy, which is not run, the one simulated as the fastest."""
    return one["chosen"] if one["chosen"] in step else min(step, key=lambda name: one["rows"][name]["simulated_s"])


def _op_by_op(one, step):
    """The regret among the rows that are not compiled."""
    names = [name for name in step if not name.endswith("compiled")]
    chosen = min(names, key=lambda name: one["rows"][name]["simulated_s"])
    return f"{step[chosen] / min(step[name] for name in names):.2f}"


def _plain(one, step):
    """The better of the steps on one worker, op by op and compiled."""
    return min(step[name] for name in step if name.startswith("one device"))


def _memory(one):
    """The most that was held over what was simulated, of all rows and devices."""
    held = [
        held / peak
        for row in one["rows"].values()
        if row["held_bytes"] is not None
        for held, peak in zip(row["held_bytes"], row["peak_bytes"], strict=True)
        if peak > 0
    ]
    return f"{min(held):.2f} to {max(held):.2f}" if held else "-"


if __name__ == "__main__":
    flags.DEFINE_list("models", list(MODELS), "Which models.")
    flags.DEFINE_integer("turns", 7, "Turns that count.", 3)
    flags.DEFINE_bool("compiled", True, "Measure compiled steps for the profiles, too.")
    flags.DEFINE_integer("seed", 0, "Of searches and orders.")
    run("plan_regret", measure, text)
