"""What the constructive placers cost and give: seconds against the number of ops, and simulated step times.

    python -m research.benchmarks.list_scheduling  # builds four models, rewrites list_scheduling.json
    python -m research.benchmarks.list_scheduling --graphs a.npz b.npz   # saved OpGraphs instead of the zoo's models
    python -m research.benchmarks.list_scheduling --part speed  # rewrites that part only; the other is "quality"

Synthetic graphs are layered: 40 ops to a layer, each reading two or three of the layer before, on 8 GPUs. Seconds are
those of one run of a placer, evaluations and everything else included, after a run on a small graph has loaded the
compiled kernels. "plan" rows are one plan by a kernel, without laying out the graph. Step times are simulated on the
topology, "tight" ones with accelerators of a third of the memory that the whole model needs on one of them.
"""

import argparse
import dataclasses
import json
import os
import platform
import time
from pathlib import Path

import numba
import numpy as np
import scipy

from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.group.problem import formulate
from tfplace.local_search.devices import compute_devices, single_device, single_devices
from tfplace.registry import PLACERS
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology

ROOT = Path(__file__).resolve().parents[2]

PLACER_NAMES = ("heft", "critical_path", "etf", "m_etf", "m_sct", "m_topo", "expert", "round_robin", "random")
MODELS = ("inception_v3", "resnet50", "rnnlm_2", "transformer")
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
WIDTH = 40


def layered(count, devices=8):
    """Ops in layers, seconds from 0.1 to 10 ms, tensors of up to a megabyte."""
    rng = np.random.default_rng(0)
    names = [f"layer_{i // WIDTH}/op{i}" for i in range(count)]
    edges = []
    for i in range(WIDTH, count):
        first = i // WIDTH * WIDTH - WIDTH
        edges += [f"{names[first + j]} -> {names[i]}" for j in rng.choice(WIDTH, rng.integers(2, 4), replace=False)]
    sizes = rng.integers(0, 2**20, count).tolist()
    graph = make_graph(dict(zip(names, sizes, strict=True)), edges, name=f"layered_{count}")
    return make_problem(graph, make_topology(devices), rng.choice([1e-4, 1e-3, 1e-2], count))


def place(name, problem):
    """[U] devices, seconds and evaluations."""
    search = Search(problem, Budget(evaluations=1000), 0)
    begin = time.perf_counter()
    devices = PLACERS[name]().place(search.context(name))
    return devices, time.perf_counter() - begin, search.evaluations


def timed(action):
    begin = time.perf_counter()
    result = action()
    return result, round(time.perf_counter() - begin, 4)


def plans(problem):
    """Seconds of laying out a problem and of one plan by each rule."""
    scheduler, layout = timed(lambda: Scheduler.of(problem))
    _, rank = timed(lambda: scheduler.order)
    rows = {"layout": layout, "rank": rank}
    for name, rule in (("by_order", {}), ("by_order serial whole", {"serial": True, "whole": True})):
        rows[name] = timed(lambda rule=rule: scheduler.by_order(**rule))[1]
    for name, rule in (("by_start", {}), ("by_start serial", {"serial": True})):
        rows[name] = timed(lambda rule=rule: scheduler.by_start(**rule))[1]
    return rows


def speed(sizes):
    for name in PLACER_NAMES:
        place(name, layered(400))
    rows = []
    for size in sizes:
        problem = layered(size)
        row = {"ops": size, "edges": problem.graph.num_edges, "devices": problem.num_devices, "plan_s": plans(problem)}
        row["placer_s"] = {name: round(place(name, problem)[1], 3) for name in PLACER_NAMES}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def tightened(problem):
    """The problem with accelerators of a third of the memory that the whole model needs on one of them."""
    accelerators = compute_devices(problem)
    simulator = Simulator(problem)
    need = max(int(simulator(single_device(problem, d)).peak_bytes[d]) for d in accelerators)
    limit = problem.memory_limit.copy()
    limit[accelerators] = need // 3
    return dataclasses.replace(problem, memory_limit=limit)


def entry(problem, name):
    devices, seconds, evaluations = place(name, problem)
    over, step_s = Simulator(problem).key(devices)
    return {
        "step_ms": round(1e3 * step_s, 3),
        "over_mib": round(over / 2**20, 1),
        "seconds": round(seconds, 3),
        "evaluations": evaluations,
    }


def quality(graph, topology):
    roomy = formulate(graph, topology, analytic_costs(graph, topology), Constraints())
    rows = []
    for case, problem in (("roomy", roomy), ("tight", tightened(roomy))):
        simulator = Simulator(problem)
        over, step_s = min(simulator.key(devices) for devices in single_devices(problem))
        row = {
            "model": graph.name,
            "case": case,
            "ops": graph.num_ops,
            "units": problem.num_units,
            "bound_ms": round(1e3 * lower_bound(problem).seconds, 3),
            "single": {"step_ms": round(1e3 * step_s, 3), "over_mib": round(over / 2**20, 1)},
            "placers": {name: entry(problem, name) for name in PLACER_NAMES},
        }
        rows.append(row)
        show(row)
    return rows


def show(row):
    print(f"{row['model']} {row['case']}: bound {row['bound_ms']} ms, single {row['single']}")
    for name, found in row["placers"].items():
        short = f"{found['over_mib']} MiB over" if found["over_mib"] else ""
        print(f"  {name:<14} {found['step_ms']:>10.2f} ms {found['seconds']:>7.2f} s {short}", flush=True)


def graphs(paths):
    if paths:
        yield from (OpGraph.load(path) for path in paths)
        return
    from tfplace_zoo import zoo

    import tfplace

    for name in MODELS:
        built = zoo.build(name)
        yield tfplace.extract(built.model, built.batch, name=name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=Path, nargs="*", default=[], help="saved OpGraphs instead of the zoo's models")
    parser.add_argument("--part", nargs="*", choices=("speed", "quality"), default=("speed", "quality"))
    parser.add_argument("--topology", default="4xP100")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="ops of the synthetic graphs")
    parser.add_argument("--out", type=Path, default=ROOT / "research" / "data" / "list_scheduling.json")
    flags = parser.parse_args()
    topology = Topology.load(flags.topology)
    rows = json.loads(flags.out.read_text()) if flags.out.exists() else {}
    if "speed" in flags.part:
        rows["speed"] = speed(flags.sizes)
    if "quality" in flags.part:
        rows["quality"] = [row for graph in graphs(flags.graphs) for row in quality(graph, topology)]
    versions = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "scipy": scipy.__version__,
    }
    config = {"topology": topology.name, "cpus": os.cpu_count(), "models": list(MODELS)}
    flags.out.write_text(json.dumps({**rows, "config": config, "versions": versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
