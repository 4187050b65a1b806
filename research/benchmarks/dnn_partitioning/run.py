"""What placers reach on the public workloads of Tarnawski et al., by both objectives.

    python -m research.benchmarks.dnn_partitioning.run --objective=throughput --placers=contiguous,load_search,exact
    python -m research.benchmarks.dnn_partitioning.run --objective=step_time --placers=exact --budget=30s --seeds=1
    python -m research.benchmarks.dnn_partitioning.run --table

Each run is one search with its own budget. Results are added to results.json beside this file, run by run; what is
there with this budget is not run again, so that a command goes on where it was stopped. Workloads and reference.json
are data of github.com/msr-fiddle/dnn-partitioning at commit b207b6a (MIT licence, LICENSE.dnn-partitioning.txt),
numbers unchanged, unused fields dropped.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path

from tfplace.comparison.cells import seeds_of
from tfplace.comparison.tables import replace_between
from tfplace.core.stepcost import STEP_TIME, THROUGHPUT
from tfplace.files import write_whole
from tfplace.group.dnn_partitioning import load_workload
from tfplace.registry import OBJECTIVES
from tfplace.search.place import search_placement
from tfplace.version import versions

ROOT = Path(__file__).resolve().parents[3]

HERE = ROOT / "research" / "data" / "dnn_partitioning"
PAGE = ROOT / "docs" / "research" / "throughput.md"
RESULTS = HERE / "results.json"
REFERENCE = json.loads((HERE / "reference.json").read_text())
WORKLOADS = tuple(sorted(REFERENCE))
PLACERS = (
    *("single", "round_robin", "expert", "heft", "contiguous"),
    *("random_search", "annealing", "local_search", "load_search", "exact", "auto"),
)


def main() -> None:
    args = _arguments()
    results = json.loads(args.results.read_text()) if args.results.exists() else {}
    if args.table:
        print(throughput_table(results), step_table(results), sep="\n\n")
        page = PAGE.read_text()
        for name, table in (("throughput", throughput_table), ("steps", step_table)):
            page = replace_between(page, name, table(results))
        PAGE.write_text(page)
        return
    for name in args.workloads:
        if args.objective == THROUGHPUT and REFERENCE[name]["objective"] != "max_load":
            continue
        runs = [(placer, seed) for placer in args.placers for seed in seeds_of(placer, args.seeds)]
        for placer, seed in runs:
            key = f"{args.objective} {name} {placer} {seed}"
            if results.get(key, {}).get("budget") == args.budget:
                continue
            results[key] = run(name, args.objective, placer, args.budget, seed)
            args.results.parent.mkdir(parents=True, exist_ok=True)
            write_whole(args.results, json.dumps(dict(sorted(results.items())), indent=1) + "\n")
            print(key, json.dumps(results[key]), flush=True)
    print(throughput_table(results) if args.objective == THROUGHPUT else step_table(results))


def run(name: str, objective: str, placer: str, budget: str, seed: int) -> dict[str, object]:
    """One search; milliseconds of its result and its bound, seconds and processor seconds it took, and what made it."""
    problem = load_workload(HERE / "workloads" / f"{name}.json")
    since, worked = time.perf_counter(), time.process_time()
    placement = search_placement(
        problem, placer=placer, budget=budget, seed=seed, baselines=(), evaluator=OBJECTIVES[objective](problem)
    )
    return {
        "value_ms": round(placement.cost.step_s * 1e3, 6),
        "bound_ms": round(placement.bound_s * 1e3, 6),
        "notes": list(placement.notes),
        "budget": budget,
        "seed": seed,
        "seconds": round(time.perf_counter() - since, 1),
        "cpu_s": round(time.process_time() - worked, 1),
        "versions": versions(),
    }


def throughput_table(results: dict[str, dict[str, float]]) -> str:
    """Largest loads in ms: medians over the seeds, how far from the best known, and the least and the most of that."""
    placers = _placers(results, THROUGHPUT)
    rows = [["workload", "best known", "lower bound", "msr_dp", *placers]]
    for name in WORKLOADS:
        known = REFERENCE[name]
        runs = {placer: runs_of(results, THROUGHPUT, name, placer) for placer in placers}
        if not any(runs.values()):
            continue
        row = [name, f"{known['best_known']:.4f}", f"{known['lower_bound']:.4f}"]
        row.append(f"{known['values']['msr_dp']['value']:.4f}")
        row += [_load([run["value_ms"] for run in found], known["best_known"]) for found in runs.values()]
        rows.append(row)
    return _markdown(rows)


def _load(values: list[float], known: float) -> str:
    if not values:
        return ""
    median, *ends = (f"{100 * (v / known - 1):+.2f}" for v in (statistics.median(values), min(values), max(values)))
    spread = "" if ends[0] == ends[1] else f"; {'..'.join(ends)}"
    return f"{statistics.median(values):.4f} ({median} %{spread})"


def step_table(results: dict[str, dict[str, float]]) -> str:
    """Simulated step times in ms, and how far the best can be from the optimum."""
    placers = _placers(results, STEP_TIME)
    rows = [["workload", *placers, "bound", "CP-SAT's bound", "gap"]]
    for name in WORKLOADS:
        runs = {p: runs_of(results, STEP_TIME, name, p) for p in placers}
        every = [run for found in runs.values() for run in found]
        if not every:
            continue
        best = min(run["value_ms"] for run in every)
        bound = max((run["bound_ms"] for p, found in runs.items() if p != "exact" for run in found), default=math.nan)
        proven = max(run["bound_ms"] for run in every)
        medians = [f"{statistics.median(r['value_ms'] for r in found):.3f}" if found else "" for found in runs.values()]
        rows.append([name, *medians, f"{bound:.3f}", f"{proven:.3f}", f"{100 * (best / proven - 1):.2f} %"])
    return _markdown(rows)


def runs_of(results: dict[str, dict[str, float]], objective: str, workload: str, placer: str) -> list[dict[str, float]]:
    """Its runs, one per seed."""
    return [run for key, run in results.items() if key.split()[:3] == [objective, workload, placer]]


def _placers(results: dict[str, dict[str, float]], objective: str) -> list[str]:
    """Those that there are results of, the usual ones first."""
    found = {key.split()[2] for key in results if key.startswith(f"{objective} ")}
    return [p for p in PLACERS if p in found] + sorted(found - {*PLACERS})


def _markdown(rows: list[list[str]]) -> str:
    rule = ["---"] * len(rows[0])
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objective", choices=[STEP_TIME, THROUGHPUT], default=THROUGHPUT)
    parser.add_argument("--placers", type=lambda text: text.split(","), default=list(PLACERS))
    parser.add_argument("--workloads", type=lambda text: text.split(","), default=list(WORKLOADS))
    parser.add_argument("--budget", default="60s", help="of every run: seconds or evaluations")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each placer with random choices, from seed 0 on")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument(
        "--table", action="store_true", help="only print the results there are, and put them on the page"
    )
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("Stopped; results that there are by now are kept.", file=sys.stderr)
        sys.exit(130)
