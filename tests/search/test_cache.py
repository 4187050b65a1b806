"""Slow evaluators are asked once for each placement."""

from __future__ import annotations

import numpy as np

from tfplace.core.stepcost import MEASURED
from tfplace.search.budget import Budget
from tfplace.search.cache import Cache
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_devices, random_problem


def problem_of():
    return random_problem(np.random.default_rng(3), num_ops=30, num_devices=3)


class Slow(Simulator):
    """Counts what it is asked."""

    source = MEASURED

    def __init__(self, problem, source=MEASURED):
        super().__init__(problem)
        self.source, self.rows = source, []

    def key(self, unit_device, limit_s=np.inf):
        self.rows.append(np.array(unit_device).tolist())
        return super().key(unit_device, limit_s)

    def keys(self, unit_devices, limit_s=np.inf):
        self.rows += np.array(unit_devices).tolist()
        return super().keys(unit_devices, limit_s)


def test_the_answers_are_the_evaluators_and_each_is_given_once():
    problem = problem_of()
    rng = np.random.default_rng(0)
    rows = np.stack([random_devices(rng, problem) for _ in range(4)])
    slow = Slow(problem)
    cache = Cache(slow)
    asked = rows[[0, 1, 0, 2, 1, 3]]
    for part in (asked[:2], asked[2:]):
        over, step_s = cache.keys(part, np.inf)
        expected = Simulator(problem).keys(part)
        assert over.tolist() == expected[0].tolist() and step_s.tolist() == expected[1].tolist()
    assert [cache.key(row, np.inf) for row in rows] == [Simulator(problem).key(row) for row in rows]
    assert sorted(slow.rows) == sorted(rows.tolist())


def test_what_was_given_up_is_asked_for_again():
    problem = problem_of()
    row = random_devices(np.random.default_rng(0), problem)
    slow = Slow(problem)
    cache = Cache(slow)
    assert cache.key(row, 1e-12)[1] == np.inf
    assert cache.key(row, np.inf) == Simulator(problem).key(row)
    assert len(slow.rows) == 2


def test_a_repeated_placement_counts_but_is_not_measured_again(tmp_path):
    problem = problem_of()
    row = random_devices(np.random.default_rng(0), problem)
    for asked in (1, 0):  # the second process is told what the first one measured
        slow = Slow(problem)
        with RunDirectory(tmp_path, {}) as run:
            search = Search(problem, Budget(evaluations=4), 0, evaluator=slow, run=run)
            context = search.context("x")
            for _ in range(2 if asked else 4):
                context.key(row)
        assert len(slow.rows) == asked
    assert search.evaluations == 4


def test_simulated_steps_are_not_looked_up():
    problem = problem_of()
    row = random_devices(np.random.default_rng(0), problem)
    quick = Slow(problem, "simulated")
    context = Search(problem, Budget(evaluations=4), 0, evaluator=quick).context("x")
    for _ in range(3):
        context.key(row)
    assert len(quick.rows) == 3
