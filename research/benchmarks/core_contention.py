"""Whether a busy core slows another: seconds of an operation beside a busy neighbour over its seconds alone.

    python -m research.benchmarks.core_contention   # rewrites core_contention.json beside it

Each process is pinned to a core of its own and uses one thread. Alone and beside take turns.
"""

import json
import multiprocessing
import os
import statistics
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
TURNS, REPEATS = 5, 20
OPERATIONS = {
    "product 256": (np.matmul, 256),
    "product 1024": (np.matmul, 1024),
    "sum 128": (np.add, 128),
    "sum 512": (np.add, 512),
    "sum 2048": (np.add, 2048),
}
NEIGHBOURS = ("product 1024", "sum 2048")


def seconds(name, repeats):
    operation, side = OPERATIONS[name]
    a, b = (np.random.default_rng(i).random((side, side), np.float32) for i in range(2))
    out = np.empty_like(a)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        operation(a, b, out=out)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def keep_busy(name, core, until):
    os.sched_setaffinity(0, {core})
    while not until.is_set():
        seconds(name, 10)


def beside(name, neighbour, core):
    until = multiprocessing.Event()
    process = multiprocessing.Process(target=keep_busy, args=(neighbour, core, until))
    process.start()
    time.sleep(0.3)
    took = seconds(name, REPEATS)
    until.set()
    process.join()
    return took


def main():
    mine, other, *_ = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {mine})
    rows = []
    for name in OPERATIONS:
        for neighbour in NEIGHBOURS:
            ratios = [beside(name, neighbour, other) / seconds(name, REPEATS) for _ in range(TURNS)]
            rows.append({"operation": name, "beside": neighbour, "ratio": statistics.median(ratios), "turns": ratios})
            print(f"{name:<13} beside {neighbour:<13} x{rows[-1]['ratio']:.3f}", flush=True)
    (ROOT / "research" / "data" / "core_contention.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
