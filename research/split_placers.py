"""Steps in slices beside what users would pick instead, on every model of the zoo; all simulated.

    python -m research.split_placers                                # 60 s a search, 3 seeds: a day on one processor
    python -m research.split_placers --budget=15s --seeds=1         # some three hours
    python -m research.split_placers --models=inception_v3 --topologies=4xP100 --tight=false --out=FILE
    python -m research.split_placers --page=docs/research/split_steps.md      # puts the tables of what there is there

Of each case, a model with its own batch on a box, are kept: one device; `mirrored`, a simulated step of
tf.distribute.MirroredStrategy; `data_parallel`, `gpipe` and `one_f_one_b`, each with the best of 2, 4 and 8 slices, the
pipelines in the order that they are named for; `auto` without slices; and `auto` with slices="auto", which has the same
budget for all numbers of slices together. With tight memory, accelerators have 1.5 times their share of what one of
them would need for the whole step. Results are written case by case; the same command goes on where it was stopped.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
import sys
import time
from pathlib import Path

from absl import app, flags

from tfplace.cli.quiet import load_tensorflow
from tfplace.cli.scripts import script
from tfplace.comparison.tables import Page, table

ROOT = Path(__file__).resolve().parent.parent
TOPOLOGIES = ("4xP100", "8xV100-NVLink", "2xV100-PCIe+2xP100")
SLICES = (2, 4, 8)
ORDERS = {"data_parallel": ("free", "by_use", "1f1b"), "gpipe": ("gpipe",), "one_f_one_b": ("1f1b",)}
"""Placer -> the orders of phases of which the best counts."""

OTHERS = ("one device", "mirrored", *ORDERS, "auto, whole")
SPLIT = "auto, slices"
NEAR = 1.2
"""A best other step within this times the bound leaves too little to gain to be counted."""

_MOST_OPS = 200_000
"""Graphs with more ops than this are left out: they take minutes to be read, for each number of slices."""

_MODELS = flags.DEFINE_list("models", [], "Models of the zoo; by default all.")
_TOPOLOGIES = flags.DEFINE_list("topologies", list(TOPOLOGIES), "Presets.")
_TIGHT = flags.DEFINE_list("tight", ["false", "true"], "With ample memory, with tight memory, or with both.")
_BUDGET = flags.DEFINE_string("budget", "60s", "Of each search.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "Of each search.", 1)
_GRAPHS = flags.DEFINE_string("graphs", str(ROOT / "out" / "split_graphs"), "Where graphs are kept.")
_OUT = flags.DEFINE_string("out", str(ROOT / "research" / "data" / "split_placers.jsonl"), "The results.")
_PAGE = flags.DEFINE_string("page", None, "A page whose tables are rewritten; nothing is run.")


def main(argv):
    with script(argv):
        if _PAGE.value:
            Page(_PAGE.value, "split-placers").write(text(_kept()))
            return
        _run()
        print(text(_kept()))


def _kept():
    path = Path(_OUT.value)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _run():
    from tfplace_zoo import zoo

    done = {(row["model"], row["topology"], row["tight"]) for row in _kept()}
    models = _MODELS.value or [*zoo.names()]
    for tight in [text == "true" for text in _TIGHT.value]:
        for topology in _TOPOLOGIES.value:
            for model in models:
                if (model, topology, tight) in done:
                    continue
                began = time.monotonic()
                row = _case(model, topology, tight=tight)
                with Path(_OUT.value).open("a") as out:
                    out.write(json.dumps(row) + "\n")
                took = time.monotonic() - began
                print(f"{model} on {topology}{', tight' if tight else ''}: {took:.0f} s", file=sys.stderr, flush=True)


def _case(model, topology, *, tight):
    from tfplace.comparison.cells import Case, problem_of, tightened
    from tfplace.errors import SplitError
    from tfplace.version import versions

    case = Case(model, topology, tight=False, spare=1.5, groups=0)
    whole = problem_of(_graph(model, 1), case)
    limit = tightened(whole, case.spare).memory_limit if tight else whole.memory_limit

    @functools.cache
    def problem(sizes):
        count = sizes if isinstance(sizes, int) else len(sizes)
        if count * whole.graph.num_ops > _MOST_OPS and count > 1:
            raise SplitError(f"{count} slices of {whole.graph.num_ops:,} ops", f"{_MOST_OPS:,} ops at most")
        return dataclasses.replace(problem_of(_graph(model, sizes), case), memory_limit=limit)

    return {
        "model": model,
        "topology": topology,
        "tight": tight,
        "ops": whole.graph.num_ops,
        "budget": _BUDGET.value,
        "command": " ".join(["python -m research.split_placers", *sys.argv[1:]]),
        "versions": versions(),
        **_steps(problem),
    }


def _graph(model, slices):
    """The model's step in such slices, kept in a file."""
    from tfplace.core.graph import OpGraph

    named = slices if isinstance(slices, int) else "-".join(map(str, slices))
    path = Path(_GRAPHS.value) / f"{model}_{named}.npz"
    if path.exists():
        return OpGraph.load(path)
    load_tensorflow(gpus=False)
    import keras
    from tfplace_zoo import zoo

    import tfplace

    keras.backend.clear_session()
    built = zoo.build(model)
    graph = tfplace.extract(built.model, built.batch, slices=slices)
    path.parent.mkdir(parents=True, exist_ok=True)
    graph.save(path)
    return graph


def _steps(problem_in):
    """Seconds by what was tried, None where nothing fits; of searches by seed.

    Args:
      problem_in: slices -> the problem; raises SplitError.
    """
    from tfplace.errors import InfeasibleError, SplitError, TfplaceError
    from tfplace.local_search.devices import compute_devices, single_devices
    from tfplace.options import SearchOptions
    from tfplace.registry import PLACERS
    from tfplace.search.mirrored import mirrored_cost
    from tfplace.search.over_slices import place_over_slices
    from tfplace.search.place import search_placement
    from tfplace.search.starts import quickly_placed
    from tfplace.simulation.evaluate import Simulator
    from tfplace.simulation.options import Options

    def fitting(keys):
        over, step_s = min(keys, default=(1, math.inf))
        return step_s if over == 0 and math.isfinite(step_s) else None

    def searched(problem, **options):
        try:
            return search_placement(problem, baselines=(), **options).cost.step_s
        except InfeasibleError:
            return None

    whole, split = problem_in(1), {}
    simulator, devices = Simulator(whole), len(compute_devices(whole))
    for k in SLICES:
        try:
            split[k] = problem_in(k)
        except SplitError as error:
            print(error, file=sys.stderr)
    found = {
        "slices": [1, *split],
        "bound_s": min(Simulator(problem).bound_s for problem in (whole, *split.values())),
        "one device": fitting([simulator.key(units) for units in single_devices(whole)]),
        "mirrored": fitting([mirrored_cost(split[devices]).key] if devices in split else []),
    }
    for placer, orders in ORDERS.items():
        keys = []
        for problem in split.values():
            judge = Simulator(problem, Options(phase_orders=orders))
            try:
                keys.append(judge.key(quickly_placed(problem, PLACERS[placer](), 0, judge)))
            except TfplaceError as error:
                print(f"{placer}: {error}", file=sys.stderr)
        found[placer] = fitting(keys)
    found["auto, whole"], found[SPLIT], found["chosen"] = [], [], []
    for seed in range(_SEEDS.value):
        found["auto, whole"].append(searched(whole, placer="auto", budget=_BUDGET.value, seed=seed))
        options = SearchOptions.of("place", {"budget": _BUDGET.value, "seed": seed, "baselines": ()}).check()

        def search(problem, given):
            return search_placement(problem, **given.given() | {"evaluator": None, "progress": None})

        try:
            best = place_over_slices(lambda sizes: problem_in(sizes or 1), search, options)
            slices = best.problem.graph.slices
            found[SPLIT].append(best.cost.step_s)
            found["chosen"].append([1 if slices is None else list(slices.sizes), best.order])
        except InfeasibleError:
            found[SPLIT].append(None)
    return found


# ---- tables ----------------------------------------------------------------------------------------------------------


def text(rows):
    """A line for each box and memory, then a line for each case.

    Args:
      rows: what is kept.
    """
    groups = {}
    for row in rows:
        groups.setdefault((row["topology"], row["tight"]), []).append(row)
    head = ["box", "models", "open", *(f"over {name}" for name in OTHERS), "over the best", "behind by over 1 %"]
    lines = [_line(topology, tight, group) for (topology, tight), group in groups.items()]
    cases = [["model", "box", *OTHERS, SPLIT, "bound", "slices"]]
    for row in rows:
        steps = [_shown(_median(row[name])) for name in (*OTHERS, SPLIT)]
        chosen = ", ".join(f"{_sizes(k)} {order}" for k, order in row["chosen"][:1])
        cases.append([row["model"], _box(row["topology"], row["tight"]), *steps, _shown(row["bound_s"]), chosen])
    return f"{table(head, lines)}\n\n{table(cases[0], cases[1:])}"


def _line(topology, tight, rows):
    counted = [row for row in rows if _median(row[SPLIT]) is not None]
    ratios = {name: [_median(r[SPLIT]) / _median(r[name]) for r in counted if _median(r[name])] for name in OTHERS}
    best = {row["model"]: _best(row) for row in counted if _best(row)}
    gains = [(r["model"], _median(r[SPLIT]) / best[r["model"]]) for r in counted if r["model"] in best]
    far = [r for r in counted if r["model"] in best and best[r["model"]] > NEAR * r["bound_s"]]
    open_gains = [_median(r[SPLIT]) / best[r["model"]] for r in far]
    behind = [f"{model} {gain:.2f}" for model, gain in gains if gain > 1.01]
    return [
        _box(topology, tight),
        str(len(rows)),
        str(len(far)),
        *(_mean(ratios[name]) for name in OTHERS),
        f"{statistics.geometric_mean(open_gains):.3f}" if open_gains else "-",
        ", ".join(behind) or "none",
    ]


def _sizes(sizes):
    if isinstance(sizes, int) or len({*sizes}) == 1:
        return str(sizes if isinstance(sizes, int) else len(sizes))
    return "+".join(map(str, sizes))


def _mean(ratios):
    return f"{statistics.geometric_mean(ratios):.2f} ({len(ratios)})" if ratios else "-"


def _box(topology, tight):
    return topology + (", tight" if tight else "")


def _median(found):
    """Seconds; None where none fits."""
    steps = found if isinstance(found, list) else [found]
    steps = [step for step in steps if step is not None]
    return statistics.median(steps) if steps else None


def _best(row):
    steps = [_median(row[name]) for name in OTHERS]
    return min((step for step in steps if step is not None), default=None)


def _shown(step_s):
    return "-" if step_s is None else f"{1e3 * step_s:.3g}"


if __name__ == "__main__":
    app.run(main)
