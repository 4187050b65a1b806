"""How well Grappler's step times agree with the simulator's: rank correlations over placements of many kinds.

    python -m research.benchmarks.grappler_agreement  # the zoo; rewrites grappler_agreement.json beside it
    python -m research.benchmarks.grappler_agreement --models rnnlm_2  # some of its models; the file keeps the others

Three figures are compared with the simulated step time of the same placement: Grappler's own, to which transfers are
free; Grappler's with transfers added, by which `--evaluator=grappler` ranks; and that again with a simulator that is
given Grappler's op seconds, which leaves only what the two differ in besides the costs of ops.
docs/research/grappler.md explains what comes out.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
from tfplace_zoo import zoo

import tfplace
from grappler_bridge.cluster import VirtualDevice
from grappler_bridge.costs import measure_costs
from research.fidelity.agreement import agreement
from tfplace.core.costs import CostTable
from tfplace.core.topology import Topology
from tfplace.measurement.grappler import GrapplerEvaluator
from tfplace.simulation.evaluate import Simulator
from tfplace.testing.variety import variety

ROOT = Path(__file__).resolve().parents[2]

OWN, WITH_TRANSFERS, SAME_COSTS = "Grappler's own", "with transfers", "the same op seconds"


def grappler_costs(graph, topology):
    """Op seconds by Grappler: everything on one device after another."""
    columns = []
    for device in topology.devices:
        alone = VirtualDevice(device.name, device.type, device.flops["float32"], device.memory_bandwidth)
        meta = graph.metagraph(dict.fromkeys(graph.op_names, device.name))
        seconds = {op.name: op.seconds for op in measure_costs(meta, [alone]).ops}
        columns.append([seconds.get(op, 0.0) for op in graph.op_names])
    return CostTable(np.array(columns).T * graph.trips[:, None], ("grappler",) * graph.num_ops)


def compare(problem, placements):
    """Per placement: the three figures, and how long Grappler took."""
    simulated = Simulator(problem)
    with_its_costs = Simulator(dataclasses.replace(problem, costs=grappler_costs(problem.graph, problem.topology)))
    rows = []
    with GrapplerEvaluator(problem) as evaluator:
        evaluator(next(iter(placements.values())))  # the process starts
        for name, devices in placements.items():
            begin = time.perf_counter()
            cost = evaluator(devices)
            seconds = time.perf_counter() - begin
            if cost.failure is not None:
                raise SystemExit(f"{problem.graph.name}, {name}: {cost.failure}")
            own_s, with_transfers_s = evaluator.figures(devices)
            rows.append(
                {
                    "placement": name,
                    "simulated_ms": 1e3 * simulated(devices).step_s,
                    "own_ms": 1e3 * own_s,
                    "with_transfers_ms": 1e3 * with_transfers_s,
                    "simulated_same_costs_ms": 1e3 * with_its_costs(devices).step_s,
                    "moved_bytes": cost.moved_bytes,
                    "evaluation_s": round(seconds, 3),
                }
            )
    return rows


def summary(rows):
    def column(name):
        return np.array([row[name] for row in rows])

    pairs = {
        OWN: ("own_ms", "simulated_ms"),
        WITH_TRANSFERS: ("with_transfers_ms", "simulated_ms"),
        SAME_COSTS: ("with_transfers_ms", "simulated_same_costs_ms"),
    }
    out = {}
    for figure, (mine, theirs) in pairs.items():
        found = agreement(column(mine), column(theirs))
        ratio = column(mine) / column(theirs)
        low, middle, high = np.percentile(ratio, [10, 50, 90])
        out[figure] = {
            "spearman": round(found.spearman, 3),
            "kendall": round(found.kendall, 3),
            "median_ratio": round(float(middle), 3),
            "p10_ratio": round(float(low), 3),
            "p90_ratio": round(float(high), 3),
            "regret": round(found.regret, 3),
        }
    return out


def show(entry):
    for figure, found in entry["agreement"].items():
        spread = f"{found['p10_ratio']:.2f}..{found['p90_ratio']:.2f}"
        print(
            f"{entry['model']:<14} {entry['ops']:>6} {entry['placements']:>3} {figure:<20} {found['spearman']:>8.3f} "
            f"{found['kendall']:>8.3f} {found['median_ratio']:>7.2f} {spread:>12} "
            f"{100 * found['regret']:>7.1f} % {entry['evaluation_s']:>9.2f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=zoo.names(), help="some of the zoo's models instead of all")
    parser.add_argument("--topology", default="4xP100")
    parser.add_argument("--randoms", type=int, default=10, help="random placements, at as many cut levels")
    parser.add_argument("--searches", type=int, nargs="*", default=[50, 500], help="evaluations of each search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "research" / "data" / "grappler_agreement.json")
    flags = parser.parse_args()
    topology = Topology.load(flags.topology)
    print(
        f"{'model':<14} {'ops':>6} {'n':>3} {'figure':<20} {'Spearman':>8} {'Kendall':>8} {'ratio':>7} "
        f"{'10..90 %':>12} {'regret':>9} {'s/placement':>11}"
    )
    for name in flags.models:
        built = zoo.build(name)
        problem = tfplace.formulate(tfplace.extract(built.model, built.batch, name=name), topology)
        placements = variety(problem, randoms=flags.randoms, searches=tuple(flags.searches), seed=flags.seed)
        rows = compare(problem, placements)
        entry = {
            "model": name,
            "ops": problem.graph.num_ops,
            "placements": len(rows),
            "evaluation_s": round(statistics.median(row["evaluation_s"] for row in rows), 3),
            "agreement": summary(rows),
            "rows": [{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in rows],
        }
        show(entry)
        save(flags, entry)


def save(flags, entry):
    """Puts one model's results into the file, in place of earlier ones made with the same settings."""
    config = {k: getattr(flags, k) for k in ("topology", "randoms", "searches", "seed")} | {"cpus": os.cpu_count()}
    packages = ("tensorflow", "keras", "numpy")
    versions = {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in packages}}
    made = {"config": config, "versions": versions}
    before = json.loads(flags.out.read_text()) if flags.out.exists() else {}
    same = all(before.get(k) == v for k, v in made.items())
    kept = [e for e in before.get("results", []) if same and e["model"] != entry["model"]]
    results = sorted([*kept, entry], key=lambda e: e["model"])
    flags.out.write_text(json.dumps({**made, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
