"""Solves many tiny problems with CP-SAT and compares with all placements. Run by test_exact.py, without
TensorFlow, since OR-Tools does not live in one process with it. Prints how many problems of each kind agreed."""

import itertools
import sys

import numpy as np

from tfplace.core.stepcost import STEP_TIME, THROUGHPUT
from tfplace.schedule.exact.cp_model import Limits
from tfplace.schedule.exact.cp_process import Question, answer
from tfplace.simulation.evaluate import Simulator, timeline_of
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import make_topology, random_problem
from tfplace.testing.graphs import random_graph
from tfplace.testing.problems import random_topology


def tiny(seed):
    rng = np.random.default_rng(seed)
    devices = 2 + seed % 2
    alike = make_topology(devices, types="CPU", bandwidth=300.0, latency=0.2)
    topology = alike if seed % 3 == 0 else random_topology(rng, devices)
    graph = random_graph(rng, 6, variables=1, loops=0.1)
    return random_problem(rng, graph=graph, topology=topology, tight=seed % 4 == 1)


def everything(problem, evaluator):
    choices = [np.flatnonzero(row).tolist() for row in problem.allowed]
    rows = np.array([*itertools.product(*choices)], np.int32)
    over, value_s = evaluator.keys(rows)
    return rows[over == 0], value_s[over == 0]


def ask(problem, objective, rows, value_s):
    """CP-SAT from the worst placement that fits."""
    start, start_s = rows[value_s.argmax()], float(value_s.max())
    begin_s = timeline_of(problem, problem.spread(start)).start_s
    return answer(Question(problem, objective, start, start_s, begin_s, Limits(None, 10.0, 1)))


def throughput(problem):
    evaluator = PipelineLoads(problem)
    rows, value_s = everything(problem, evaluator)
    if not len(rows) or value_s.max() == 0:
        return 0
    found, best = ask(problem, THROUGHPUT, rows, value_s), float(value_s.min())
    assert found.status == "OPTIMAL", found
    assert best * (1 - 1e-4) - 1e-12 <= found.bound_s <= best * (1 + 1e-9), (found, best)
    assert evaluator.key(found.found[-1])[0] == 0
    assert evaluator.key(found.found[-1])[1] <= best + 1e-4 * value_s.max()
    return 1


def step(problem):
    simulator = Simulator(problem)
    rows, value_s = everything(problem, simulator)
    if not len(rows) or value_s.max() == 0:
        return 0
    found, best = ask(problem, STEP_TIME, rows, value_s), float(value_s.min())
    assert found.status == "OPTIMAL", found
    assert found.bound_s <= best * (1 + 1e-9), (found, best)
    assert found.bound_s >= simulator.bound_s * (1 - 1e-4) - 1e-4 * value_s.max() or best > found.bound_s
    for devices in found.found:
        problem.expand(devices)
    return 1 if found.bound_s >= best * (1 - 1e-4) else 0


if __name__ == "__main__":
    assert "tensorflow" not in sys.modules
    problems = [tiny(seed) for seed in range(int(sys.argv[1]))]
    sys.stdout.write(f"{sum(map(throughput, problems))} {sum(map(step, problems))}\n")
