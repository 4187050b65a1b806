"""Parts of searches that keep a run directory, for its tests."""

from __future__ import annotations

import contextlib
import json

import numpy as np

from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.records import RECORD
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem


def problem_of(seed=3):
    return random_problem(np.random.default_rng(seed), num_ops=40, num_devices=3, unit=1e-3)


class Counting(Simulator):
    """Counts what it really evaluates; ends the process's work after so many."""

    def __init__(self, problem, last=10**9, source="simulated"):
        super().__init__(problem)
        self.last, self.asked, self.paths, self.source = last, 0, 0, source

    def key(self, unit_device, limit_s=np.inf):
        self._count(1)
        return super().key(unit_device, limit_s)

    def keys(self, unit_devices, limit_s=np.inf):
        self._count(len(unit_devices))
        return super().keys(unit_devices, limit_s)

    def critical_path(self, unit_device):
        self.paths += 1  # not kept: a search that goes on asks for them again
        return super().critical_path(unit_device)

    def _count(self, rows):
        if self.asked + rows > self.last:
            raise KilledError
        self.asked += rows


class KilledError(Exception):
    pass


def run(path, placer, budget, last=10**9, seed=0, **settings):
    """One process's part of a run; the search, and what was really evaluated."""
    problem = problem_of()
    evaluator = Counting(problem, last, **settings)
    with RunDirectory(path, {"placer": placer}) as directory:
        search = Search(problem, Budget.parse(budget), seed, evaluator=evaluator, run=directory)
        with contextlib.suppress(KilledError):
            search.run(PLACERS[placer](), placer)
    return search, evaluator.asked


def facts(path):
    """What a file says, but for when."""
    if path.suffix == ".bin":
        return np.fromfile(path, RECORD)[["over", "step_s", "check"]].tolist()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in path.read_text().splitlines()]
