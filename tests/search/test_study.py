from __future__ import annotations

import time

import numpy as np
import pytest

from tfplace.errors import PlacementError
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulate.evaluate import Simulator
from tfplace.study.base import BudgetSpentError
from tfplace.testing import random_devices, random_problem


@pytest.fixture
def problem():
    return random_problem(np.random.default_rng(3), num_ops=30, num_devices=3)


def devices(problem, d):
    return problem.allowed.argmax(axis=1).astype(np.int32) if d is None else np.full(problem.num_units, d, np.int32)


def test_a_budget_in_evaluations_is_exact(problem):
    search = Search(problem, Budget(evaluations=5), 0)
    study = search.study("test")
    for _ in range(5):
        study.key(devices(problem, None))
    assert search.evaluations == 5 and study.spent == 1.0
    with pytest.raises(BudgetSpentError):
        study.key(devices(problem, None))
    assert study.tell(devices(problem, None)[None], np.zeros(1, np.int64), np.ones(1)) == 0


def test_what_others_evaluated_counts_though_time_is_up(problem):
    """It is there, and evaluating it again would take as long."""
    search = Search(problem, Budget(seconds=0.01), 0)
    study = search.study("test")
    study.key(devices(problem, None))
    time.sleep(0.02)
    with pytest.raises(BudgetSpentError):
        study.key(devices(problem, None))
    assert study.tell(devices(problem, None)[None], np.zeros(1, np.int64), np.zeros(1)) == 1
    assert search.best_key == (0, 0.0)


def test_the_best_is_kept(problem):
    search = Search(problem, Budget(evaluations=50), 0)
    study = search.study("test")
    rng = np.random.default_rng(0)
    keys = []
    for _ in range(20):
        placement = rng.integers(0, problem.num_devices, problem.num_units).astype(np.int32)
        keys.append(study.key(placement))
    assert study.best_key == search.best_key == min(keys)
    assert search.evaluator(study.best).key == min(keys)
    assert [i.key for i in search.history] == sorted({i.key for i in search.history}, reverse=True)


def test_the_best_is_a_copy(problem):
    study = Search(problem, Budget(evaluations=5), 0).study("test")
    placement = devices(problem, None)
    study.key(placement)
    placement[:] = -1
    assert study.best.min() >= 0


def test_shares_have_their_own_end_and_tell_their_parents(problem):
    search = Search(problem, Budget(evaluations=100), 0)
    study = search.study("whole")
    half = study.share(0.5, "first half")
    for _ in range(50):
        half.key(devices(problem, None))
    with pytest.raises(BudgetSpentError):
        half.key(devices(problem, None))
    assert half.spent == 1.0 and study.spent == 0.5
    assert study.best_key == half.best_key
    assert search.history[0].stage == "first half"
    rest = study.share(1.0, "rest")
    assert rest.best is None
    rest.key(devices(problem, None))


def test_the_smallest_budget_allows_one_evaluation(problem):
    study = Search(problem, Budget(seconds=1e-9), 0).study("test")
    study.key(devices(problem, None))
    with pytest.raises(BudgetSpentError):
        study.key(devices(problem, None))


def test_progress_is_told_and_goes_from_0_to_1(problem):
    seen = []
    search = Search(problem, Budget(seconds=0.7), 0, seen.append)
    study = search.study("test")
    with pytest.raises(BudgetSpentError):
        while True:
            study.key(devices(problem, None))
    assert 1 <= len(seen) <= 5
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions) and 0 <= fractions[0] <= fractions[-1] <= 1
    assert seen[-1].best_s == search.best_key[1] and seen[-1].stage == "test"


def test_a_batch_is_cut_to_what_the_budget_has_left():
    problem = random_problem(np.random.default_rng(0), num_ops=20)
    study = Search(problem, Budget(evaluations=5), seed=0).study("batch")
    rows = np.stack([random_devices(np.random.default_rng(i), problem) for i in range(3)])
    over, step_s = study.keys(rows)
    assert [(int(o), float(s)) for o, s in zip(over, step_s, strict=True)] == [Simulator(problem).key(r) for r in rows]
    assert len(study.keys(rows)[0]) == 2
    with pytest.raises(BudgetSpentError):
        study.keys(rows)
    assert study.best_key == min(zip(over.tolist(), step_s.tolist(), strict=True))


def test_a_step_given_up_is_not_the_best():
    problem = random_problem(np.random.default_rng(0), num_ops=20)
    study = Search(problem, Budget(evaluations=5), seed=0).study("limit")
    row = random_devices(np.random.default_rng(1), problem)
    step_s = Simulator(problem).key(row)[1]
    study.key(row, step_s / 2)
    assert study.key(row) == study.best_key


def test_what_others_evaluated_counts_as_far_as_the_budget_goes(problem):
    search = Search(problem, Budget(evaluations=3), 0)
    study = search.study("told")
    rows = np.stack([devices(problem, None)] * 5)
    assert study.tell(rows, np.array([0, 7, 0, 0, 0]), np.array([3.0, 1.0, 2.0, 1.0, 0.5])) == 3
    assert search.evaluations == 3
    assert study.best_key == search.best_key == (0, 2.0)


def test_known_placements_are_evaluated_first(problem):
    class Nothing:
        citation = ""

        def place(self, study):
            assert study.best_key == Simulator(problem).key(known)
            return study.best

    search = Search(problem, Budget(evaluations=5), 0)
    known = devices(problem, None)
    search.enqueue(known)
    assert search.run(Nothing(), "x").tolist() == known.tolist()
    assert search.evaluations == 1
    with pytest.raises(PlacementError, match="one device for each"):
        search.enqueue(known[:-1])
