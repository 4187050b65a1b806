"""Larger units out of units."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.core.search_context import BudgetSpentError
from tfplace.errors import PlacementError
from tfplace.group.merge import merge_units, renumber
from tfplace.local_search.grouped_context import Grouped
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def grouped_by_allowed(problem, rng, groups):
    """[U] random groups of units with the same allowed devices."""
    kind = np.unique(problem.allowed, axis=0, return_inverse=True)[1].ravel()
    return renumber(kind * groups + rng.integers(groups, size=problem.num_units))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_merged_problem_costs_what_the_units_cost(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=30, num_devices=3)
    label = grouped_by_allowed(problem, rng, 4)
    merged = merge_units(problem, label)
    devices = np.array([rng.choice(np.flatnonzero(row)) for row in merged.allowed], np.int32)
    assert Simulator(merged).key(devices) == Simulator(problem).key(devices[label])
    np.testing.assert_array_equal(merged.expand(devices), problem.expand(devices[label]))


@given(st.lists(st.integers(0, 5), max_size=20))
def test_renumbering_keeps_the_groups(labels):
    label = np.array(labels, np.int64)
    new = renumber(label)
    assert [(new == new[i]).tolist() for i in range(len(new))] == [
        (label == label[i]).tolist() for i in range(len(new))
    ]
    assert list(dict.fromkeys(new.tolist())) == list(range(len({*labels})))


def test_wrong_labels_are_refused():
    problem = make_problem(make_graph({"a": 1, "b": 1, "c": 1}), make_topology(2))
    with pytest.raises(PlacementError, match="3 units"):
        merge_units(problem, np.zeros(2, np.int32))
    with pytest.raises(PlacementError, match="numbered"):
        merge_units(problem, np.array([1, 0, 0], np.int32))


def test_a_group_needs_a_device():
    problem = random_problem(np.random.default_rng(0), num_ops=40, num_devices=3)
    allowed = problem.allowed.copy()
    allowed[0], allowed[1] = [True, False, False], [False, True, False]

    problem = dataclasses.replace(problem, allowed=allowed)
    with pytest.raises(PlacementError, match="share no device"):
        merge_units(problem, np.zeros(problem.num_units, np.int32))


def test_what_a_grouped_study_evaluates_counts_for_its_study():
    problem = make_problem(make_graph({"a": 100, "b": 100, "c": 1}, ["a -> c"]), make_topology(2))
    context = Search(problem, Budget(evaluations=4), seed=0).context("outer")
    grouped = Grouped(context, np.array([0, 1, 0], np.int32))
    assert grouped.key(np.array([0, 0], np.int32)) == Simulator(problem).key(np.zeros(3, np.int32))
    over, step_s = grouped.keys(np.array([[0, 1], [1, 0]], np.int32))
    assert len(over) == len(step_s) == 2
    assert grouped.best_key == context.best_key
    np.testing.assert_array_equal(grouped.ungroup(grouped.best), context.best)
    inner = grouped.share(1.0, "inner")
    assert inner.best is None
    assert inner.key(np.array([1, 1], np.int32)) == inner.best_key
    with pytest.raises(BudgetSpentError):
        inner.key(np.array([1, 1], np.int32))
