"""How good the placers' placements are: simulated step times of the zoo's models, with a spread over seeds.

    python benchmarks/placers_quality.py                       # builds the zoo, rewrites placers_quality.json beside it
    python benchmarks/placers_quality.py --graphs a.pkl b.pkl  # pickled OpGraphs instead
    python benchmarks/placers_quality.py --budget 60s          # as long as a user would wait, on this machine

With a budget in evaluations the step times do not depend on the machine. "tight" rows give every accelerator a third of
the memory that the whole model needs on one, so that one alone does not fit.
"""

import argparse
import dataclasses
import json
import os
import pickle
import platform
import statistics
import sys
import time
from pathlib import Path

import numba
import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tfplace.core.constraints import Constraints  # noqa: E402
from tfplace.core.topology import Topology  # noqa: E402
from tfplace.cost.analytic import analytic_costs  # noqa: E402
from tfplace.errors import InfeasibleError  # noqa: E402
from tfplace.group.problem import formulate  # noqa: E402
from tfplace.placers.base import compute_devices, single_device  # noqa: E402
from tfplace.search.place import search_placement  # noqa: E402
from tfplace.simulate.bounds import lower_bound  # noqa: E402
from tfplace.simulate.evaluate import Simulator  # noqa: E402

ONE_SHOT = ("round_robin", "expert", "heft")
SEARCHES = ("local_search", "auto")


def graphs(paths, models):
    """The graphs of pickles, or of the zoo's models (those named, or all)."""
    if paths:
        for path in paths:
            yield pickle.loads(path.read_bytes())
        return
    import tfplace
    from models import zoo

    for name in models or zoo.names():
        built = zoo.build(name)
        yield tfplace.extract(built.model, built.batch, name=name)


def tightened(problem):
    """The problem with accelerators of a third of the memory that the whole model needs on one of them."""
    accelerators = compute_devices(problem)
    simulator = Simulator(problem)
    need = max(int(simulator(single_device(problem, d)).peak_bytes[d]) for d in accelerators)
    limit = problem.memory_limit.copy()
    limit[accelerators] = need // 3
    return dataclasses.replace(problem, memory_limit=limit)


def one_search(problem, placer, budget, seed):
    """Milliseconds of the step, or None if nothing that fits was found, and seconds the search took."""
    begin = time.perf_counter()
    try:
        cost = search_placement(problem, placer=placer, budget=budget, seed=seed, baselines=()).cost
    except InfeasibleError:
        return None, time.perf_counter() - begin
    return 1e3 * cost.step_s, time.perf_counter() - begin


def row(problem, case, placer, budget, seeds):
    runs = [one_search(problem, placer, budget, seed) for seed in seeds]
    fits = [ms for ms, _ in runs if ms is not None]
    return {
        "model": problem.graph.name,
        "case": case,
        "placer": placer,
        "step_ms": [None if ms is None else round(ms, 3) for ms, _ in runs],
        "median_ms": round(statistics.median(fits), 3) if fits else None,
        "seconds": round(statistics.median(s for _, s in runs), 2),
    }


def singles(problem, case):
    """The best accelerator alone, with the host for what it has no kernels for."""
    simulator = Simulator(problem)
    costs = [simulator(single_device(problem, d)) for d in compute_devices(problem)]
    best = min(costs, key=lambda cost: cost.key)
    ms = round(1e3 * best.step_s, 3) if best.feasible else None
    name = {"model": problem.graph.name, "case": case}
    return {**name, "placer": "best accelerator alone", "step_ms": [ms], "median_ms": ms, "seconds": 0.0}


def show(entry, bound_ms):
    times = [ms for ms in entry["step_ms"] if ms is not None]
    spread = f"{min(times):.1f}..{max(times):.1f}" if len(times) > 1 else ""
    median = "does not fit" if entry["median_ms"] is None else f"{entry['median_ms']:.1f}"
    over = "" if entry["median_ms"] is None else f"{entry['median_ms'] / bound_ms:.2f}"
    print(
        f"{entry['model']:<14} {entry['case']:<6} {entry['placer']:<22} {median:>12} {spread:>14} {over:>6} "
        f"{entry['seconds']:>7}",
        flush=True,
    )


def measure(graph, topology, flags):
    costs = analytic_costs(graph, topology)
    roomy = formulate(graph, topology, costs, Constraints())
    rows = []
    for case, problem in (("roomy", roomy), ("tight", tightened(roomy))):
        bound_ms = 1e3 * lower_bound(problem).seconds
        seeds = range(flags.seeds)
        entries = [singles(problem, case)]
        entries += [row(problem, case, name, 50, (0,)) for name in ONE_SHOT]
        entries += [row(problem, case, name, flags.budget, seeds) for name in SEARCHES]
        for entry in entries:
            show(entry, bound_ms)
            rows.append({**entry, "bound_ms": round(bound_ms, 3), "ops": graph.num_ops, "units": problem.num_units})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=Path, nargs="*", default=[], help="pickled OpGraphs instead of the zoo")
    parser.add_argument("--models", nargs="*", default=[], help="some of the zoo's models instead of all")
    parser.add_argument("--topology", default="4xP100")
    parser.add_argument("--budget", default="20000 evaluations")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    flags = parser.parse_args()
    topology = Topology.load(flags.topology)
    print(f"{'model':<14} {'case':<6} {'placer':<22} {'ms':>12} {'spread':>14} {'/bound':>6} {'seconds':>7}")
    rows = [entry for graph in graphs(flags.graphs, flags.models) for entry in measure(graph, topology, flags)]
    config = {"topology": topology.name, "budget": flags.budget, "seeds": flags.seeds, "cpus": os.cpu_count()}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    flags.out.write_text(json.dumps({"config": config, "versions": versions, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
