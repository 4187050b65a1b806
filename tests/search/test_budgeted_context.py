from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from tfplace.core.search_context import BudgetSpentError
from tfplace.errors import PlacementError
from tfplace.local_search.devices import single_devices
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_devices, random_problem


@pytest.fixture
def problem():
    return random_problem(np.random.default_rng(3), num_ops=30, num_devices=3)


def devices(problem, d):
    return problem.allowed.argmax(axis=1).astype(np.int32) if d is None else np.full(problem.num_units, d, np.int32)


def test_a_budget_in_evaluations_is_exact(problem):
    search = Search(problem, Budget(evaluations=5), 0)
    context = search.context("test")
    for _ in range(5):
        context.key(devices(problem, None))
    assert search.evaluations == 5 and context.spent == 1.0
    with pytest.raises(BudgetSpentError):
        context.key(devices(problem, None))
    assert context.tell(devices(problem, None)[None], np.zeros(1, np.int64), np.ones(1)) == 0


def test_what_others_evaluated_counts_though_time_is_up(problem):
    """It is there, and evaluating it again would take as long."""
    search = Search(problem, Budget(seconds=0.01), 0)
    context = search.context("test")
    context.key(devices(problem, None))
    time.sleep(0.02)
    with pytest.raises(BudgetSpentError):
        context.key(devices(problem, None))
    assert context.tell(devices(problem, None)[None], np.zeros(1, np.int64), np.zeros(1)) == 1
    assert search.best_key == (0, 0.0)


def test_the_best_is_kept(problem):
    search = Search(problem, Budget(evaluations=50), 0)
    context = search.context("test")
    rng = np.random.default_rng(0)
    keys = []
    for _ in range(20):
        placement = random_devices(rng, problem)
        keys.append(context.key(placement))
    assert context.best_key == search.best_key == min(keys)
    assert search.evaluator(context.best).key == min(keys)
    assert [i.key for i in search.history] == sorted({i.key for i in search.history}, reverse=True)


def test_the_best_is_a_copy(problem):
    context = Search(problem, Budget(evaluations=5), 0).context("test")
    placement = devices(problem, None)
    context.key(placement)
    placement[:] = -1
    assert context.best.min() >= 0


def test_shares_have_their_own_end_and_tell_their_parents(problem):
    search = Search(problem, Budget(evaluations=100), 0)
    context = search.context("whole")
    half = context.share(0.5, "first half")
    for _ in range(50):
        half.key(devices(problem, None))
    with pytest.raises(BudgetSpentError):
        half.key(devices(problem, None))
    assert half.spent == 1.0 and context.spent == 0.5
    assert context.best_key == half.best_key
    assert search.history[0].stage == "first half"
    rest = context.share(1.0, "rest")
    assert rest.best is None
    rest.key(devices(problem, None))


@pytest.mark.parametrize("budget", ["1h", "1000 evaluations"])
def test_a_share_has_no_more_evaluations_than_it_is_given(problem, budget):
    whole = Search(problem, Budget.parse(budget), 0).context("whole")
    part = whole.share(1.0, "part", 10)
    part.key(devices(problem, None))
    assert part.spent == pytest.approx(0.1)
    rows = np.repeat(devices(problem, None)[None], 6, axis=0)
    assert len(part.keys(rows)[0]) == 6
    inner = part.share(1.0, "inner", 100)
    assert len(inner.keys(rows)[0]) == 3
    assert inner.spent == part.spent == 1.0 and whole.spent < 0.02
    for spent in (part, inner, part.share(1.0, "late")):
        with pytest.raises(BudgetSpentError):
            spent.keys(rows)
    whole.key(devices(problem, None))
    few = whole.share(0.5, "few", 10**6)
    assert few.left.evaluations in (None, 495)
    assert few.share(1.0, "one", 1).left.evaluations in (None, 1)


def test_with_time_enough_only_evaluations_count(problem, monkeypatch):
    """Where a search is in its budget must not depend on the pace of the machine, unless the time runs short."""
    search = Search(problem, Budget(seconds=100.0), 0)
    part = search.context("whole").share(1.0, "part", 10)
    part.key(devices(problem, None))
    for seconds, spent in ((0.0, 0.1), (40.0, 0.1), (52.0, 0.1), (60.0, 0.2), (90.0, 0.8), (100.0, 1.0), (200.0, 1.0)):
        monkeypatch.setattr(search, "position", lambda seconds=seconds: seconds)
        assert part.spent == pytest.approx(spent, abs=0.01)


def test_by_the_clock_a_share_that_is_late_evaluates_once(problem):
    """A placer that took longer than it was to is not to have worked for nothing."""
    search = Search(problem, Budget.parse("1h"), 0)
    whole = search.context("whole")
    whole.key(single_devices(problem)[0])
    late = whole.share(1e-12, "late")
    assert late.left.seconds == 0.0
    late.key(single_devices(problem)[1])
    with pytest.raises(BudgetSpentError):
        late.key(single_devices(problem)[1])
    assert late.best is not None


def test_the_smallest_budget_allows_one_evaluation(problem):
    context = Search(problem, Budget(seconds=1e-9), 0).context("test")
    context.key(devices(problem, None))
    with pytest.raises(BudgetSpentError):
        context.key(devices(problem, None))


def test_progress_is_told_and_goes_from_0_to_1(problem):
    seen = []
    search = Search(problem, Budget(seconds=0.7), 0, seen.append)
    context = search.context("test")
    with pytest.raises(BudgetSpentError):
        while True:
            context.key(devices(problem, None))
    assert 1 <= len(seen) <= 5
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions) and 0 <= fractions[0] <= fractions[-1] <= 1
    assert seen[-1].best_s == search.best_key[1] and seen[-1].stage == "test"


def test_a_batch_is_cut_to_what_the_budget_has_left():
    problem = random_problem(np.random.default_rng(0), num_ops=20)
    context = Search(problem, Budget(evaluations=5), seed=0).context("batch")
    rows = np.stack([random_devices(np.random.default_rng(i), problem) for i in range(3)])
    over, step_s = context.keys(rows)
    assert [(int(o), float(s)) for o, s in zip(over, step_s, strict=True)] == [Simulator(problem).key(r) for r in rows]
    assert len(context.keys(rows)[0]) == 2
    with pytest.raises(BudgetSpentError):
        context.keys(rows)
    assert context.best_key == min(zip(over.tolist(), step_s.tolist(), strict=True))


def test_a_step_given_up_is_not_the_best():
    problem = random_problem(np.random.default_rng(0), num_ops=20)
    context = Search(problem, Budget(evaluations=5), seed=0).context("limit")
    row = random_devices(np.random.default_rng(1), problem)
    step_s = Simulator(problem).key(row)[1]
    context.key(row, step_s / 2)
    assert context.key(row) == context.best_key


def test_what_others_evaluated_counts_as_far_as_the_budget_goes(problem):
    search = Search(problem, Budget(evaluations=3), 0)
    context = search.context("told")
    rows = np.stack([devices(problem, None)] * 5)
    assert context.tell(rows, np.array([0, 7, 0, 0, 0]), np.array([3.0, 1.0, 2.0, 1.0, 0.5])) == 3
    assert search.evaluations == 3
    assert context.best_key == search.best_key == (0, 2.0)


def test_known_placements_are_evaluated_first(problem):
    class Nothing:
        citation = ""

        def place(self, context):
            assert context.best_key == Simulator(problem).key(known)
            return context.best

    search = Search(problem, Budget(evaluations=5), 0)
    known = devices(problem, None)
    search.enqueue(known)
    assert search.run(Nothing(), "x").tolist() == known.tolist()
    assert search.evaluations == 1
    with pytest.raises(PlacementError, match="one device for each"):
        search.enqueue(known[:-1])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda p: np.full(p.num_units, -1), "a device index out of range"),
        (lambda p: np.full(p.num_units, 99), "a device index out of range"),
        (lambda p: np.zeros(p.num_units + 1, np.int32), "devices of shape"),
        (lambda p: np.zeros(p.num_units), "devices of type float64"),
    ],
)
def test_what_are_no_devices_is_refused_before_it_is_evaluated(problem, wrong, text):
    context = Search(problem, Budget(evaluations=5), 0).context("test")
    with pytest.raises(PlacementError, match=text):
        context.key(wrong(problem))
    with pytest.raises(PlacementError, match=text):
        context.keys(wrong(problem)[None])
    assert context.evaluations == 0


def test_a_best_that_breaks_a_rule_is_refused(problem):
    allowed = problem.allowed.copy()
    allowed[:, 0] = False
    allowed[:, 1] = True
    context = Search(dataclasses.replace(problem, allowed=allowed), Budget(evaluations=5), 0).context("test")
    with pytest.raises(PlacementError, match=r"on .*:0; expected a device that .* the constraints allow"):
        context.key(devices(problem, 0))
    assert context.best is None


class Answers:
    """Evaluates some placements, and answers with one."""

    citation = "none"

    def __init__(self, evaluated, answer):
        self.evaluated = evaluated
        self.answer = answer

    def place(self, context):
        for placement in self.evaluated:
            context.key(placement)
        return self.answer


def test_the_better_of_what_was_evaluated_and_what_is_answered_counts(problem):
    rng = np.random.default_rng(0)
    some = sorted((random_devices(rng, problem) for _ in range(5)), key=lambda p: Simulator(problem).key(p))
    good, bad = some[0], some[-1]
    for placer in (Answers([good], bad), Answers([bad], good), Answers([], good), Answers([bad, good], None)):
        search = Search(problem, Budget(evaluations=10), 0)
        if placer.answer is None:
            with pytest.raises(PlacementError, match="devices of shape"):
                search.run(placer, "test")
        else:
            assert np.array_equal(search.run(placer, "test"), good)
    search = Search(problem, Budget(evaluations=10), 0)
    search.run(Answers([bad], good), "test")
    assert np.array_equal(search.best, good)
