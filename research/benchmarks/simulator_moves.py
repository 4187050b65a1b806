"""Whether a search that moves a few ops at a time could be spared most of each simulation.

    python -m research.benchmarks.simulator_moves             # the zoo; rewrites simulator_moves.json beside it

A plain annealing run moves stretches of ops in topological order from device to device. Two things are measured on it:

- giving up: the threshold of acceptance is drawn before a placement is simulated and is given to it as `limit_s`.
  "time" is the time with the limit over the time without; the decisions are the same, which is checked. A descent,
  which accepts only what is better, gives up more often than annealing.
- starting late: "untouched" is the share of a step's events (ops and transfers that end) before the first at which the
  move can make a difference. A simulation that starts from a checkpoint there is spared no more than that, and has to
  keep and restore checkpoints for it, so there is none.
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
from tfplace_zoo import zoo

import tfplace
from tfplace.core.topology import Topology
from tfplace.local_search.devices import compute_devices, single_device
from tfplace.simulation.evaluate import Simulator

ROOT = Path(__file__).resolve().parents[2]

HOT, COLD = 5.0, 0.25
LOOKED_AT = 25


class Walk:
    """Annealing, or a descent if `hot` is 0, over stretches of units in the order of their first ops."""

    def __init__(self, problem, hot, cold, seed):
        self.problem, self.hot, self.cold = problem, hot, cold
        self.rng = np.random.default_rng(seed)
        self.simulator = Simulator(problem)
        first = np.array([members[0] for members in problem.grouping.members])
        self.order = np.argsort(first, kind="stable")
        self.accelerators = compute_devices(problem)
        self.devices = single_device(problem, int(self.accelerators[0]))
        self.step_s = self.best_s = self.simulator.key(self.devices)[1]
        self.mean_s = self.step_s / problem.num_units
        self.given_up = self.full_s = self.limited_s = 0.0
        self.untouched = []

    def run(self, moves):
        done = 0
        while done < moves:
            units, device = self.draw()
            if len(units) and np.any(self.devices[units] != device):
                temperature = self.mean_s * self.hot * (self.cold / max(self.hot, self.cold)) ** (done / moves)
                self.move(units, device, temperature, look=done % LOOKED_AT == 0)
                done += 1
        return {
            "given_up": round(self.given_up / moves, 3),
            "time": round(self.limited_s / self.full_s, 3),
            "untouched_mean": round(float(np.mean(self.untouched)), 3),
            "untouched_median": round(float(np.median(self.untouched)), 3),
            "found": round(self.best_s / (self.mean_s * self.problem.num_units), 3),
        }

    def draw(self):
        count = len(self.order)
        length = round((count / 8) ** self.rng.random())
        begin = int(self.rng.integers(count))
        device = int(self.rng.choice(self.accelerators))
        units = self.order[begin : begin + length]
        return units[self.problem.allowed[units, device]], device

    def move(self, units, device, temperature, look):
        old = self.devices[units]
        if look:
            self.untouched.append(untouched(self.problem, self.simulator, self.devices, units[old != device]))
        self.devices[units] = device
        limit_s = self.step_s - temperature * math.log(1.0 - self.rng.random())
        begin = time.perf_counter()
        step_s = self.simulator.key(self.devices)[1]
        between = time.perf_counter()
        limited_s = self.simulator.key(self.devices, limit_s)[1]
        self.limited_s += time.perf_counter() - between
        self.full_s += between - begin
        if limited_s != (step_s if step_s <= limit_s else math.inf):
            raise SystemExit(f"{limited_s} with a limit of {limit_s}, {step_s} without")
        self.given_up += step_s > limit_s
        if step_s <= limit_s:
            self.step_s, self.best_s = step_s, min(step_s, self.best_s)
        else:
            self.devices[units] = old


def untouched(problem, simulator, devices, moved_units):
    """Share of the events before anything the moved ops read is made; 0 if one of them reads nothing."""
    graph = problem.graph
    timeline = simulator.timeline(problem.spread(devices))
    counted = ~graph.replicable
    moved = np.isin(problem.grouping.unit_of, moved_units) & counted
    edges = ~graph.edge_back & counted[graph.edge_src] & moved[graph.edge_dst]
    if np.isin(np.flatnonzero(moved), graph.edge_dst[edges]).all():
        begin = timeline.finish_s[graph.edge_src[edges]].min()
    else:
        begin = 0.0
    events = np.concatenate([timeline.finish_s[counted], timeline.moved_finish_s])
    return float((events < begin).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["inception_v3", "rnnlm_2", "resnet50", "transformer"])
    parser.add_argument("--topology", default="4xP100")
    parser.add_argument("--moves", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "research" / "data" / "simulator_moves.json")
    flags = parser.parse_args()
    rows = []
    print(f"{'model':<14} {'ops':>6} {'walk':<10} {'given up':>8} {'time':>6} {'untouched mean':>14} {'median':>7}")
    for name in flags.models:
        built = zoo.build(name)
        problem = tfplace.formulate(tfplace.extract(built.model, built.batch), Topology.load(flags.topology))
        for walk, hot in (("annealing", HOT), ("descent", 0.0)):
            found = Walk(problem, hot, COLD, flags.seed).run(flags.moves)
            rows.append({"model": name, "ops": problem.graph.num_ops, "walk": walk, **found})
            print(
                f"{name:<14} {problem.graph.num_ops:>6} {walk:<10} {found['given_up']:>8.0%} {found['time']:>6.2f} "
                f"{found['untouched_mean']:>14.0%} {found['untouched_median']:>7.0%}",
                flush=True,
            )
    config = {k: getattr(flags, k) for k in ("topology", "moves", "seed")} | {"cpus": os.cpu_count()}
    versions = {p: importlib.metadata.version(p) for p in ("tensorflow", "numpy", "numba")}
    made = {"config": config, "versions": {"python": platform.python_version(), **versions}, "results": rows}
    flags.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
