"""How fast the simulator is: microseconds per placement, and against the plain-Python oracle of the tests.

    python benchmarks/simulator_speed.py            # prints the table, rewrites simulator_speed.json beside it

Medians on one core; compiling is left out. "blocks" is a placement in contiguous blocks, as people and good placers
make them; "random" sends nearly every tensor and is the worst case.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import numba
import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.simulate.oracle import Oracle  # noqa: E402
from tfplace.simulate.evaluate import Simulator  # noqa: E402
from tfplace.testing import make_topology, random_devices, random_graph, random_problem  # noqa: E402

SIZES = ((500, 2), (5_000, 5), (50_000, 8))


def placements(rng, problem, how, count):
    if how == "random":
        return [random_devices(rng, problem) for _ in range(count)]
    units, devices = problem.num_units, problem.num_devices
    blocks = (np.arange(units) * devices // units).astype(np.int32)
    shifted = [np.roll(blocks, int(rng.integers(units))) for _ in range(count)]
    return shifted if how == "blocks" else [np.full(units, i % devices, np.int32) for i in range(count)]


def microseconds(ask, questions):
    times = []
    for question in questions:
        begin = time.perf_counter()
        ask(question)
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def measure(num_ops, num_devices, how, repeats, seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, num_ops, fan_in=2.15, window=20, constants=0.02, cpu_only=0.0)
    problem = random_problem(rng, graph=graph, topology=make_topology(num_devices), ties=False, unit=1e-4)
    sim = Simulator(problem)
    questions = placements(rng, problem, how, repeats)
    sim.key(questions[0])
    moved = statistics.median(len(sim.timeline(problem.spread(q)).moved) for q in questions[:5])
    row = {
        "ops": graph.num_ops,
        "edges": graph.num_edges,
        "devices": num_devices,
        "placement": how,
        "transfers": moved,
        "key_us": round(microseconds(sim.key, questions), 1),
        "cost_us": round(microseconds(sim, questions), 1),
    }
    if num_ops <= 500:
        plain = microseconds(lambda q: Oracle(problem, problem.spread(q)), questions[:3])
        row["oracle_ratio"] = round(plain / row["key_us"])
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    flags = parser.parse_args()
    rows = []
    print(
        f"{'ops':>6} {'edges':>7} {'devices':>7} {'placement':>9} {'transfers':>9} {'key us':>9} {'cost us':>9}  oracle"
    )
    for num_ops, num_devices in SIZES:
        for how in ("single", "blocks", "random"):
            row = measure(num_ops, num_devices, how, flags.repeats, flags.seed)
            rows.append(row)
            print(
                f"{row['ops']:>6} {row['edges']:>7} {row['devices']:>7} {how:>9} {row['transfers']:>9} "
                f"{row['key_us']:>9} {row['cost_us']:>9}  {row.get('oracle_ratio', '')}"
            )
    config = {"repeats": flags.repeats, "seed": flags.seed, "cpus": os.cpu_count(), "machine": platform.machine()}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    flags.out.write_text(json.dumps({"config": config, "versions": versions, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
