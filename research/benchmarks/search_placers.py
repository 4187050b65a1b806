"""The plain search methods and their variants at equal numbers of simulated placements, with a spread over seeds.

    python -m research.benchmarks.search_placers  # traces the models, rewrites search_placers.json
    python -m research.benchmarks.search_placers --graphs a.npz b.npz     # saved graphs (OpGraph.save) instead
    python -m research.benchmarks.search_placers --models rnnlm_2         # other models' rows stay as they are

"random, units" draws a device for every unit; "hill_climbing, units" moves single units only; "cross_entropy, even"
starts from the uniform distribution, as Post does. `local_search` and `auto` are compared with them by
research/compare_placers.py, at equal times. 2,400 is the number of samples that Post is given in its paper.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from tfplace.core.constraints import Constraints
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.group.problem import formulate
from tfplace.local_search.devices import single_devices
from tfplace.placers.annealing import Annealing
from tfplace.placers.brkga import Brkga
from tfplace.placers.cross_entropy import CrossEntropy
from tfplace.placers.hill_climbing import HillClimbing
from tfplace.placers.random_search import RandomSearch
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator

ROOT = Path(__file__).resolve().parents[2]

PLACERS = {
    "random_search": RandomSearch,
    "random_search, units": lambda: RandomSearch(mixed=False),
    "hill_climbing": HillClimbing,
    "hill_climbing, units": lambda: HillClimbing(clusters=False),
    "annealing": Annealing,
    "brkga": Brkga,
    "cross_entropy": CrossEntropy,
    "cross_entropy, even": lambda: CrossEntropy(lean=0.0),
}
SHORT, LONG = 2400, 20_000
SHORT_ONLY = ("random_search, units", "hill_climbing, units", "cross_entropy, even")
"""Variants that are only run with the short budget."""


def problems(paths, models, topology):
    for source in paths or models:
        if paths:
            graph = OpGraph.load(source)
        else:
            from tfplace_zoo import zoo

            import tfplace

            built = zoo.build(source)
            graph = tfplace.extract(built.model, built.batch, name=source)
        yield formulate(graph, topology, analytic_costs(graph, topology), Constraints())


def run(problem, name, budget, seed):
    """Milliseconds of the best step, None if nothing fits, and the seconds the search took on one core."""
    search = Search(problem, Budget(evaluations=budget), seed, evaluator=Simulator(problem, threads=1))
    begin = time.perf_counter()
    search.run(PLACERS[name](), "search")
    seconds = time.perf_counter() - begin
    over, step_s = search.best_key
    return (None if over else round(1e3 * step_s, 3)), seconds


def row_of(problem, name, budget, runs):
    return {
        "model": problem.graph.name,
        "placer": name,
        "evaluations": budget,
        "step_ms": [ms for ms, _ in runs],
        "seconds": round(statistics.median(seconds for _, seconds in runs), 2),
    }


def show(row):
    fits = [ms for ms in row["step_ms"] if ms is not None]
    text = f"{statistics.median(fits):9.2f} {min(fits):9.2f} {max(fits):9.2f}" if fits else f"{'does not fit':>29}"
    print(f"{row['model']:<14} {row['evaluations']:>6} {row['placer']:<22} {text} {row['seconds']:>8.1f}", flush=True)


def measure(problem, flags):
    """One row per placer and budget, the searches spread over processes."""
    simulator = Simulator(problem)
    alone = min(simulator.key(devices)[1] for devices in single_devices(problem))
    print(f"{problem.graph.name}: {problem.num_units} units, single device {1e3 * alone:.2f} ms", flush=True)
    about = {"single_ms": round(1e3 * alone, 3), "bound_ms": round(1e3 * simulator.bound_s, 3)}
    cases = [
        (name, budget) for budget in flags.budgets for name in PLACERS if budget == SHORT or name not in SHORT_ONLY
    ]
    with ProcessPoolExecutor() as pool:
        runs = [[pool.submit(run, problem, *case, seed) for seed in range(flags.seeds)] for case in cases]
        for case, searches in zip(cases, runs, strict=True):
            row = row_of(problem, *case, [search.result() for search in searches])
            show(row)
            yield row | {"units": problem.num_units} | about


def save(path, config, rows):
    """Writes the rows beside those of other models and budgets that are there already."""
    versions = {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in ("numpy", "numba")}
    old = json.loads(path.read_text())["results"] if path.exists() else []
    new = {(row["model"], row["evaluations"]) for row in rows}
    kept = [row for row in old if (row["model"], row["evaluations"]) not in new]
    results = sorted(kept + rows, key=lambda row: (row["model"], row["evaluations"]))
    path.write_text(json.dumps({"config": config, "versions": versions, "results": results}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["inception_v3", "rnnlm_2", "resnet50", "transformer"])
    parser.add_argument("--graphs", type=Path, nargs="*", default=[], help="saved graphs instead of the zoo's models")
    parser.add_argument("--topology", default="4xP100")
    parser.add_argument("--budgets", type=int, nargs="*", default=[SHORT, LONG], help="evaluations")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "research" / "data" / "search_placers.json")
    flags = parser.parse_args()
    topology = Topology.load(flags.topology)
    print(f"{'model':<14} {'evals':>6} {'placer':<22} {'median ms':>9} {'min':>9} {'max':>9} {'seconds':>8}")
    config = {"topology": topology.name, "seeds": flags.seeds, "cpus": os.cpu_count()}
    for problem in problems(flags.graphs, flags.models, topology):
        save(flags.out, config, [*measure(problem, flags)])


if __name__ == "__main__":
    main()
