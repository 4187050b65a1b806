"""Batches within a budget, and all placements there are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.searching import Watched, context_of, wide_problem
from tfplace.core.search_context import BudgetSpentError
from tfplace.local_search.batches import all_keys, try_all
from tfplace.testing import make_graph, make_problem, make_topology, random_devices


def test_all_keys_is_keys_in_parts():
    problem = wide_problem(0)
    rows = np.stack([random_devices(np.random.default_rng(i), problem) for i in range(300)])
    whole, parts = context_of(problem, 300).keys(rows), all_keys(context_of(problem, 300), rows)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)
    context = context_of(problem, 30)
    with pytest.raises(BudgetSpentError):
        all_keys(context, rows)
    assert context.best_key == min(zip(*(column[:30].tolist() for column in whole), strict=True))


def test_all_keys_asks_for_little_at_a_time_where_that_takes_long():
    """A thousandth of the budget is one evaluation: rows are asked for by the dozen, not by the hundred."""
    problem = wide_problem(0)
    asked = []

    class Counted(Watched):
        def keys(self, unit_devices, limit_s=math.inf):
            asked.append(len(unit_devices))
            return super().keys(unit_devices, limit_s)

    rows = np.stack([random_devices(np.random.default_rng(i), problem) for i in range(200)])
    all_keys(context_of(problem, 1000, evaluator=Counted(problem)), rows)
    assert sum(asked) == 200
    assert max(asked) <= 16


def test_everything_is_tried_from_the_fastest_devices_on():
    problem = make_problem(make_graph(dict.fromkeys("abc", 4)), make_topology(2), np.tile([2.0, 1.0], (3, 1)))
    watched = Watched(problem)
    assert try_all(context_of(problem, evaluator=watched))
    assert [row.tolist() for row in watched.asked[:2]] == [[1, 1, 1], [1, 1, 0]]
    assert len({tuple(row) for row in watched.asked}) == 8
    assert not try_all(context_of(wide_problem(0)))
    short = context_of(problem, evaluations=7)
    assert not try_all(short) and short.spent == 0.0  # a corner of the space would tell nothing
