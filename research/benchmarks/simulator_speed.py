"""How fast the simulator is: against an event simulator in plain Python, and against Grappler's `MeasureCosts`.

    python -m research.benchmarks.simulator_speed  # all graphs; rewrites simulator_speed.json beside it
    python -m research.benchmarks.simulator_speed --graphs 5k-lstm    # some of them; the file keeps the others

All three are given the same training graphs and the same placements, one at a time on one core, everything that does
not depend on the placement done before: one device, contiguous blocks (as people and good placers make them), and
random devices, which sends nearly every tensor and is the worst case. "batch" is the simulator's time per placement of
a batch on all cores. Compiling is left out.

The plain-Python simulator (`plain_simulator.py`) is written for speed and gives the same keys, which is checked.
Grappler plays the step twice in each call, once to warm up, and knows no transfers.
"""

import argparse
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
from grappler_bridge.costs import time_measure_costs
from research.benchmarks.plain_simulator import PlainSimulator
from tfplace.core.topology import Topology
from tfplace.local_search.devices import compute_devices
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_devices

ROOT = Path(__file__).resolve().parents[2]

SMALL = {"units": 256, "vocabulary": 2000, "batch": 16}
GRAPHS = {
    "1k-lstm": ("rnnlm_2", {"steps": 10, **SMALL}),
    "5k-lstm": ("rnnlm_2", {"steps": 64, **SMALL}),
    "5k-transformer": ("transformer", {}),
    "20k-lstm": ("rnnlm_2", {"steps": 260, **SMALL}),
    "50k-lstm": ("rnnlm_2", {"steps": 660, **SMALL}),
}
BATCH = 64


def placements(problem, seed):
    """Placement kind -> [U] devices."""
    rng = np.random.default_rng(seed)
    devices = compute_devices(problem)
    first = np.array([members[0] for members in problem.grouping.members])
    turn = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    wanted = {
        "single": np.full(problem.num_units, devices[0]),
        "blocks": devices[turn * len(devices) // problem.num_units],
    }
    fallback = problem.allowed.argmax(axis=1)
    units = np.arange(problem.num_units)
    settled = {k: np.where(problem.allowed[units, d], d, fallback).astype(np.int32) for k, d in wanted.items()}
    return settled | {"random": random_devices(rng, problem)}


def microseconds(ask, repeats):
    """The least of five medians: what else runs on the machine only ever adds."""
    medians = []
    for _ in range(5):
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            ask()
            times.append(time.perf_counter() - begin)
        medians.append(statistics.median(times))
    return 1e6 * min(medians)


def grappler_seconds(problem, devices):
    graph, topology = problem.graph, problem.topology
    names = [topology.device_names[d] for d in problem.expand(devices).tolist()]
    meta = graph.metagraph(dict(zip(graph.op_names, names, strict=True)))
    cluster = [VirtualDevice(d.name, d.type, d.flops["float32"], d.memory_bandwidth) for d in topology.devices]
    return time_measure_costs(meta, cluster)


def measure(problem, devices, flags):
    simulator, plain = Simulator(problem), PlainSimulator(problem)
    key = simulator.key(devices)
    if plain.key(devices) != key:
        raise SystemExit(f"the plain simulator says {plain.key(devices)}, the compiled one {key}")
    batch = np.tile(devices, (BATCH, 1))
    simulator.keys(batch)
    graph = problem.graph
    row = {
        "transfers": len(simulator.timeline(problem.spread(devices)).moved),
        "key_us": round(microseconds(lambda: simulator.key(devices), flags.repeats), 1),
        "batch_us": round(microseconds(lambda: simulator.keys(batch), 1) / BATCH, 1),
        "plain_us": round(microseconds(lambda: plain.key(devices), 1)),
    }
    simulator.close()
    row["ns_per_op_and_edge"] = round(1e3 * row["key_us"] / (graph.num_ops + graph.num_edges), 1)
    row["plain_ratio"] = round(row["plain_us"] / row["key_us"], 1)
    if flags.grappler:
        row["grappler_s"] = round(grappler_seconds(problem, devices), 2)
        row["grappler_ratio"] = round(1e6 * row["grappler_s"] / row["key_us"])
    return row


def show(entry):
    for kind, row in entry["placements"].items():
        grappler = f"{row['grappler_s']:>10.2f} {row['grappler_ratio']:>8}" if "grappler_s" in row else ""
        print(
            f"{entry['graph']:<15} {entry['ops']:>6} {entry['edges']:>6} {kind:<7} {row['transfers']:>6} "
            f"{row['key_us']:>9} {row['ns_per_op_and_edge']:>6} {row['batch_us']:>9} {row['plain_us']:>9} "
            f"{row['plain_ratio']:>6}{grappler}",
            flush=True,
        )


def growth(results):
    """Exponent of the time in ops + edges, from the smallest to the largest of the LSTM graphs."""
    chain = sorted((e for e in results if e["graph"].endswith("lstm")), key=lambda e: e["ops"])
    if len(chain) < 2:
        return {}
    small, large = chain[0], chain[-1]
    size = np.log((large["ops"] + large["edges"]) / (small["ops"] + small["edges"]))
    return {
        kind: round(float(np.log(row["key_us"] / small["placements"][kind]["key_us"]) / size), 2)
        for kind, row in large["placements"].items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS), choices=list(GRAPHS), help="some instead of all")
    parser.add_argument("--topology", default="4xP100")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grappler", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=ROOT / "research" / "data" / "simulator_speed.json")
    flags = parser.parse_args()
    topology = Topology.load(flags.topology)
    print(
        f"{'graph':<15} {'ops':>6} {'edges':>6} {'placed':<7} {'sent':>6} {'key us':>9} {'ns/o+e':>6} {'batch us':>9} "
        f"{'plain us':>9} {'ratio':>6}{'Grappler s':>11} {'ratio':>8}"
    )
    for name in flags.graphs:
        model, parameters = GRAPHS[name]
        built = zoo.build(model, **parameters)
        problem = tfplace.formulate(tfplace.extract(built.model, built.batch, name=name), topology)
        entry = {
            "graph": name,
            "model": {"name": model, **parameters},
            "ops": problem.graph.num_ops,
            "edges": problem.graph.num_edges,
            "placements": {k: measure(problem, d, flags) for k, d in placements(problem, flags.seed).items()},
        }
        show(entry)
        save(flags, entry)


def save(flags, entry):
    """Puts one graph's results into the file, in place of earlier ones made with the same settings."""
    config = {k: getattr(flags, k) for k in ("topology", "repeats", "seed")} | {"cpus": os.cpu_count(), "batch": BATCH}
    versions = {p: importlib.metadata.version(p) for p in ("tensorflow", "numpy", "numba")}
    made = {"config": config, "versions": {"python": platform.python_version(), **versions}}
    before = json.loads(flags.out.read_text()) if flags.out.exists() else {}
    same = all(before.get(k) == v for k, v in made.items())
    kept = [e for e in before.get("results", []) if same and e["graph"] != entry["graph"]]
    results = sorted([*kept, entry], key=lambda e: (e["ops"], e["graph"]))
    found = {**made, "growth": growth(results), "results": results}
    flags.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
