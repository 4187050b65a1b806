"""What placements that do not fit count as, and which steps may be given up."""

from __future__ import annotations

import contextlib
import itertools
import math

import numpy as np
import pytest

from tests.searching import context_of, wide_problem
from tfplace.core.search_context import BudgetSpentError
from tfplace.core.stepcost import FAILED_BYTES
from tfplace.local_search.devices import single_devices
from tfplace.local_search.penalized_cost import PenalizedCost, begin, limit_for
from tfplace.placers.annealing import Annealing
from tfplace.placers.brkga import Brkga
from tfplace.placers.cross_entropy import CrossEntropy
from tfplace.placers.local_search import LocalSearch
from tfplace.testing import make_graph, make_problem, make_topology


def test_prices_grow_with_what_is_missing():
    problem = wide_problem(0)
    price = PenalizedCost(context_of(problem), (0, 3.0))
    limit = int(problem.memory_limit.sum())
    over, step_s = np.array([0, 1, 10**6, 0]), np.array([2.0, 2.0, 2.0, np.inf])
    rows = price.rows(over, step_s)
    assert rows.tolist() == [price(key) for key in zip(over.tolist(), step_s.tolist(), strict=True)]
    assert rows[0] == 2.0 < rows[1] < rows[2] < rows[3]
    assert price((limit, 2.0)) == pytest.approx(2.0 + 3.0 * 2.01)
    assert price((FAILED_BYTES, math.inf)) == math.inf
    assert math.isfinite(PenalizedCost(context_of(problem), (FAILED_BYTES, math.inf)).scale_s)


def test_the_price_of_missing_bytes_follows_what_is_found():
    """In steps of a hundredth of the budget."""
    problem = wide_problem(0)
    context = context_of(problem, evaluations=100)
    price = PenalizedCost(context, (0, 3.0))
    short, fits = (10**6, 2.0), (0, 2.0)
    first = price(short)
    price.adapt(fits=False)
    assert price(short) == first, "nothing was spent"
    placement = single_devices(problem)[0]
    found = []
    for does in (True, False, False, True, True, True):
        context.key(placement)
        price.adapt(fits=does)
        found.append(price(short))
    assert found[0] == first, "it never falls below the first"
    assert first < found[1] < found[2] > found[3] == pytest.approx(found[1])
    assert found[4] == pytest.approx(first)
    assert found[5] == first
    assert price(fits) == 2.0
    for _ in range(90):
        context.key(placement)
    price.adapt(fits=False)
    assert found[2] < price(short) < math.inf
    assert price.rows(np.array([10**6]), np.array([2.0])).tolist() == [price(short)]


def test_the_price_doubles_in_ten_evaluations_at_the_soonest():
    """In a budget of 50 it would rise by e at each; in one of 10,000 it rises by the part that is spent."""
    problem = wide_problem(0)
    for budget, factor in ((50, 2.0), (10_000, math.exp(50.0 * 10 / 10_000))):
        context = context_of(problem, evaluations=budget)
        price = PenalizedCost(context, (0, 3.0))
        for _ in range(10):
            context.key(single_devices(problem)[0])
        price.adapt(fits=False)
        assert price.weight == pytest.approx(factor)


@pytest.mark.parametrize("placer", [Annealing, Brkga, CrossEntropy, LocalSearch])
@pytest.mark.parametrize("seed", range(3))
def test_searches_end_where_the_memory_suffices(placer, seed):
    """Ten of 24 ops fit the device on which all of them start, and at the first price the rest had better not leave."""
    ops = [f"op{i:02}" for i in range(24)]
    graph = make_graph(dict.fromkeys(ops, ()), variables=dict.fromkeys(ops, 10))
    problem = make_problem(graph, make_topology(2, memory=[100, 250]), np.tile([1.0, 4.0], (24, 1)))
    context = context_of(problem, seed=seed)
    with contextlib.suppress(BudgetSpentError):
        placer(starts=[np.zeros(24, np.int32)]).place(context)
    assert context.best_key == (0, 14 * 4.0)


@pytest.mark.parametrize("placer", [Annealing, Brkga, CrossEntropy, LocalSearch])
def test_memory_has_a_price_where_nothing_takes_time(placer):
    ops = [f"op{i:02}" for i in range(24)]
    graph = make_graph(
        dict.fromkeys(ops, 1),
        [f"{a} -> {b}" for a, b in itertools.pairwise(ops)],
        variables=dict.fromkeys(ops, 10),
    )
    problem = make_problem(graph, make_topology(2, memory=[140, 140], latency=1e-6), np.zeros((24, 2)))
    context = context_of(problem)
    with contextlib.suppress(BudgetSpentError):
        placer(starts=[np.zeros(24, np.int32)]).place(context)
    assert context.best_key[0] == 0


def test_a_search_begins_from_the_best_that_fits():
    """The accelerators are faster and lack 20 bytes."""
    graph = make_graph(dict.fromkeys("ab", ()), variables=dict.fromkeys("ab", 60))
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], memory=[2**30, 100, 100])
    problem = make_problem(graph, topology, np.tile([10.0, 1.0, 1.0], (2, 1)))
    start, key, price = begin(context_of(problem), single_devices(problem))
    assert start.tolist() == [0, 0]
    assert key == (0, price.scale_s) == (0, 20.0)
    # a tenth of what both accelerators have is missing
    assert price((20, 2.0)) == pytest.approx(2.0 + 20.0 * (0.01 + 2 / 10))


def test_a_limit_never_hides_the_best():
    problem = wide_problem(0)
    context = context_of(problem)
    assert limit_for(context, 1.0) == math.inf
    step_s = context.key(single_devices(problem)[0])[1]
    assert limit_for(context, step_s / 2) == step_s
    assert limit_for(context, step_s * 2) == step_s * 2
    full = make_problem(
        make_graph(dict.fromkeys("ab", 4), variables=dict.fromkeys("ab", 60)), make_topology(2, memory=70)
    )
    context = context_of(full)
    context.key(np.zeros(2, np.int32))
    assert limit_for(context, 1.0) == math.inf
