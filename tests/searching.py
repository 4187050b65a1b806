"""What tests of searches share."""

from __future__ import annotations

import math

import numpy as np

from tfplace.core.stepcost import FAILED_BYTES
from tfplace.local_search.batches import WHOLE_SPACE
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_topology, random_graph, random_problem


class Watched(Simulator):
    """A simulator that remembers what it was asked; without limits it never gives up a step."""

    def __init__(self, problem, limits=True):
        super().__init__(problem)
        self.limits, self.asked, self.given_up = limits, [], 0

    def key(self, unit_device, limit_s=math.inf):
        self.asked.append(np.array(unit_device))
        key = super().key(unit_device, limit_s if self.limits else math.inf)
        self.given_up += key[0] == FAILED_BYTES
        return key

    def keys(self, unit_devices, limit_s=math.inf):
        self.asked += [*np.array(unit_devices)]
        over, step_s = super().keys(unit_devices, limit_s if self.limits else math.inf)
        self.given_up += int((over == FAILED_BYTES).sum())
        return over, step_s


def context_of(problem, evaluations=2000, seed=0, evaluator=None):
    return Search(problem, Budget(evaluations=evaluations), seed, evaluator=evaluator).context("test")


def wide_problem(seed, num_ops=13, num_devices=2, tight=False):
    """Of more placements than are simply tried one by one."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, num_ops, constants=0.0, cpu_only=0.0, variables=0)
    topology = make_topology(num_devices, bandwidth=1000.0, latency=0.1)
    problem = random_problem(rng, graph=graph, topology=topology, tight=tight, ties=False)
    assert num_devices**problem.num_units > WHOLE_SPACE
    return problem
