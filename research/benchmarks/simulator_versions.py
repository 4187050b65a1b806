"""How fast this checkout simulates, beside another one: a process each, in turns, on the same problems.

    git worktree add /tmp/other v0.1.0
    python -m research.benchmarks.simulator_versions --other=/tmp/other   # minutes; rewrites simulator_versions.json

Each figure is the processor time of one placement; the ratio is this one's over the other's, a pair for each turn.
Keys have to be the same to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from tfplace_zoo import zoo

import tfplace
from tfplace.version import versions

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "research" / "data" / "simulator_versions.json"
MODELS = {"two_tower": 400, "inception_v3": 10, "nasnet": 4}
"""A small, a medium and a large graph, and how many placements a turn simulates."""

CHILD = """
import sys, time
import numpy as np
try:
    from tfplace.simulation.evaluate import Simulator
except ImportError:  # its name before
    from tfplace.simulate.evaluate import Simulator
from tfplace.core.problem import Problem

problem, placements = Problem.load(sys.argv[1]), np.load(sys.argv[2])
simulator = Simulator(problem, threads=1)
ask = {"key": lambda row: simulator.key(row), "limit": lambda row: simulator.key(row, limits[row.tobytes()])}
limits = {row.tobytes(): 1.01 * simulator.key(row)[1] for row in placements}
simulator.key(placements[0], limits[placements[0].tobytes()])
for line in sys.stdin:
    what, count = line.split()
    begin = time.process_time()
    keys = [ask[what](placements[i % len(placements)]) for i in range(int(count))]
    print((time.process_time() - begin) / int(count), keys[-1][1].hex(), flush=True)
"""


def start(tree: Path, problem: Path, placements: Path) -> subprocess.Popen[str]:
    """A process that simulates by the code of a checkout."""
    env = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", CHILD, str(problem), str(placements)]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: subprocess.Popen[str], what: str, count: int) -> tuple[float, str]:
    """Seconds of a placement, and the step of the last one."""
    print(what, count, file=process.stdin, flush=True)
    seconds, step = process.stdout.readline().split()
    return float(seconds), step


def compared(model: str, count: int, other: Path, turns: int) -> dict[str, dict[str, float | list[float]]]:
    """Ratios for one graph, by kind of question."""
    built = zoo.build(model)
    problem = tfplace.formulate(tfplace.extract(built.model, built.batch), "4xP100")
    rng = np.random.default_rng(0)
    rows = [np.where(problem.allowed[:, d], d, problem.allowed.argmax(1)) for d in range(1, 5)]
    drawn = rng.integers(1, 5, (8, problem.num_units))
    inside = problem.allowed[np.arange(problem.num_units), drawn]
    rows += list(np.where(inside, drawn, problem.allowed.argmax(1)))
    found: dict[str, dict[str, float | list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path, placements = Path(folder, "problem.npz"), Path(folder, "placements.npy")
        problem.save(path)
        np.save(placements, np.array(rows, np.int32))
        pair = [start(tree, path, placements) for tree in (ROOT, other)]
        for what in ("key", "limit"):
            ratios, seconds = [], []
            for _ in range(turns):
                (mine_s, mine), (theirs_s, theirs) = (ask(process, what, count) for process in pair)
                assert mine == theirs, f"{model}: {mine} and {theirs}"
                ratios.append(mine_s / theirs_s)
                seconds.append(mine_s)
            found[what] = {"ratio": statistics.median(ratios), "seconds": statistics.median(seconds), "ratios": ratios}
        for process in pair:
            process.communicate()
    return found


def main() -> None:
    """Prints the ratios and keeps them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="the other checkout")
    parser.add_argument("--turns", type=int, default=15)
    args = parser.parse_args()
    found = {"versions": versions(), "turns": args.turns, "models": {}}
    for model, count in MODELS.items():
        found["models"][model] = compared(model, count, args.other.resolve(), args.turns)
        for what, row in found["models"][model].items():
            low, high = min(row["ratios"]), max(row["ratios"])
            print(
                f"{model} {what}: {row['ratio']:.3f} ({low:.3f}..{high:.3f}), {row['seconds'] * 1e6:.1f} us", flush=True
            )
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
