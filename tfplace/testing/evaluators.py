"""A conformance suite for evaluators. One subclass with one fixture fully tests a new evaluator. Needs pytest.

    class TestMine(EvaluatorSuite):
        @pytest.fixture
        def make(self):
            return Mine

It checks what every evaluator promises: costs, keys and batches that agree, a bound that holds, and answers that match
what its class declares (see `tfplace.core.evaluator.Evaluator`). It does not check how near the seconds are to those of
a real step. That is a matter of the evaluator's own tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tfplace.core.arrays import IntArray
from tfplace.core.evaluator import Evaluator
from tfplace.core.problem import Problem
from tfplace.core.stepcost import FAILED_BYTES, GRAPPLER, MEASURED, SIMULATED, STEP_TIME, THROUGHPUT, Key
from tfplace.errors import PlacementError
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.testing.problems import random_devices, random_problem


class EvaluatorSuite:
    """Conformance tests that every evaluator must pass. Subclass it and override the fixture `make`.

    Override the fixture `problem` too if the evaluator takes only other problems.

    Attributes:
      repeatable: whether a placement always has the same cost.
    """

    repeatable = True

    @pytest.fixture
    def make(self) -> Callable[[Problem], Evaluator]:
        """Makes the evaluator under test for a problem."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `make`")

    @pytest.fixture
    def problem(self) -> Problem:
        """What is placed: a few dozen ops, where memory is short."""
        return random_problem(np.random.default_rng(0), num_ops=30, tight=True, unit=1e-3)

    @pytest.fixture
    def evaluator(self, make: Callable[[Problem], Evaluator], problem: Problem) -> Iterator[Evaluator]:
        """The evaluator under test."""
        made = make(problem)
        yield made
        made.close()

    @pytest.fixture
    def rows(self, problem: Problem) -> IntArray:
        """[B, U] a few placements."""
        rng = np.random.default_rng(1)
        return np.stack([random_devices(rng, problem) for _ in range(4)])

    def test_it_says_what_it_is(self, evaluator: Evaluator, problem: Problem) -> None:
        """What it declares is of the kinds that a search knows."""
        assert isinstance(evaluator, Evaluator)
        assert evaluator.problem is problem
        assert evaluator.source in {SIMULATED, GRAPPLER, MEASURED}
        assert evaluator.objective in {STEP_TIME, THROUGHPUT}
        assert evaluator.batch_limit is None or evaluator.batch_limit >= 1
        assert evaluator.scale_s is None or evaluator.scale_s > 0
        assert " at 0x" not in repr(evaluator.options), "a run directory compares options as text"

    def test_costs_tell_source_and_objective(self, evaluator: Evaluator, rows: IntArray) -> None:
        """So that a report never calls a load a step time."""
        cost = evaluator(rows[0])
        assert (cost.source, cost.objective) == (evaluator.source, evaluator.objective)
        assert cost.limit_bytes.shape == (evaluator.problem.num_devices,)

    def test_key_is_that_of_the_cost(self, evaluator: Evaluator, rows: IntArray) -> None:
        """The quick way gives the same answer."""
        for row in rows:
            self._same(evaluator.key(row), evaluator(row).key)

    def test_a_batch_has_the_keys_of_its_rows(self, evaluator: Evaluator, rows: IntArray) -> None:
        """Whatever is evaluated side by side, in the order in which it was given."""
        over, step_s = evaluator.keys(rows)
        assert over.dtype == np.int64 and step_s.dtype == np.float64
        assert over.shape == step_s.shape == (len(rows),)
        for row, key in zip(rows, zip(over.tolist(), step_s.tolist(), strict=True), strict=True):
            self._same(evaluator.key(row), key)

    def test_an_empty_batch(self, evaluator: Evaluator, rows: IntArray) -> None:
        """Nothing asked, nothing told."""
        over, step_s = evaluator.keys(rows[:0])
        assert over.shape == step_s.shape == (0,)

    def test_a_step_within_the_limit_keeps_its_key(self, evaluator: Evaluator, rows: IntArray) -> None:
        """A longer one may be given up, which looks like one that failed."""
        key = evaluator.key(rows[0])
        self._same(evaluator.key(rows[0], limit_s=key[1] * 2 + 1.0), key)
        given_up = evaluator.key(rows[0], limit_s=key[1] / 2)
        if given_up != (FAILED_BYTES, np.inf):
            self._same(given_up, key)

    def test_the_bound_holds(self, evaluator: Evaluator, rows: IntArray) -> None:
        """No placement is faster."""
        assert 0 <= evaluator.bound_s <= min(evaluator.key(row)[1] for row in rows)

    def test_devices_that_fit(self, evaluator: Evaluator, problem: Problem) -> None:
        """The same units on fewer devices; every unit keeps one."""
        fitting = evaluator.fitting
        assert (fitting.num_units, fitting.num_devices) == (problem.num_units, problem.num_devices)
        assert not np.any(fitting.allowed & ~problem.allowed)
        assert fitting.allowed.any(axis=1).all()

    def test_the_critical_path_has_the_key_of_its_placement(self, evaluator: Evaluator, rows: IntArray) -> None:
        """For evaluators that tell one."""
        told = evaluator.critical_path(rows[0])
        if told is None:
            return
        path, key = told
        self._same(key, evaluator.key(rows[0]))
        assert path.seconds.sum() == pytest.approx(key[1])
        assert {*path.unit.tolist()} <= {*range(evaluator.problem.num_units)}

    def test_what_is_no_placement_is_refused(self, evaluator: Evaluator, rows: IntArray) -> None:
        """A wrong length, or no such device."""
        wrong = np.full_like(rows[0], evaluator.problem.num_devices)
        for devices in (rows[0][:-1], wrong, -1 - rows[0]):
            with pytest.raises(PlacementError):
                evaluator(devices)

    def test_a_search_has_what_it_declares(self, evaluator: Evaluator, rows: IntArray) -> None:
        """Through the context that a placer is given, in batches of any size."""
        search = Search(evaluator.problem, Budget(evaluations=20), 0, evaluator=evaluator)
        context = search.context("conformance")
        assert (context.objective, context.bound_s) == (evaluator.objective, evaluator.bound_s)
        over, _ = context.keys(rows)
        assert len(over) == search.evaluations == len(rows)
        path = context.critical_path(rows[0])
        assert search.evaluations == len(rows) + (path is not None)

    def test_closing_again_does_nothing(self, evaluator: Evaluator) -> None:
        """An evaluator may be closed by whoever made it and by whoever used it."""
        evaluator.close()
        evaluator.close()

    def _same(self, key: Key, other: Key) -> None:
        if self.repeatable:
            assert key == other
