"""The linear programme against all assignments of favourites, and its rounding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tfplace.schedule.list_scheduling.favorite_child import favourites, relax
from tfplace.schedule.list_scheduling.fuse import fuse
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def best_length(problem):
    """The least length over all choices of favourites that give each op at most one, and as many machines as ops."""
    t = fuse(problem).tasks
    relaxed = relax(t)
    pairs = list(zip(relaxed.src.tolist(), relaxed.dst.tolist(), relaxed.transfer_s.tolist(), strict=True))
    best = np.inf
    for chosen in itertools.product((False, True), repeat=len(pairs)):
        mine = [p for p, c in zip(pairs, chosen, strict=True) if c]
        if len({p[0] for p in mine}) < len(mine) or len({p[1] for p in mine}) < len(mine):
            continue
        start = np.zeros(len(t.mean_s))
        for (a, b, seconds), together in sorted(zip(pairs, chosen, strict=True), key=lambda row: row[0][1]):
            start[b] = max(start[b], start[a] + t.mean_s[a] + (0.0 if together else seconds))
        best = min(best, (start + t.mean_s).max())
    return best, relaxed.length_s


@pytest.mark.parametrize("seed", range(25))
def test_no_choice_is_shorter_than_the_relaxation(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 7, 2, ties=seed % 2 == 0)
    exact, relaxed = best_length(problem)
    assert relaxed <= exact + 1e-6 * max(exact, 1.0)


@pytest.mark.parametrize("seed", range(15))
def test_on_out_trees_the_relaxation_is_exact_or_half_way(seed):
    """Two children of one parent: one goes with it; the relaxation may share the favour between the two."""
    rng = np.random.default_rng(seed)
    seconds = rng.integers(1, 6, 3).astype(float)
    size = int(rng.integers(1, 5))
    graph = make_graph({"a": size, "b": 0, "c": 0}, ["a -> b", "a -> c"])
    problem = make_problem(graph, make_topology(2, bandwidth=1.0, latency=0.0), seconds.tolist())
    exact, relaxed = best_length(problem)
    low, high = sorted(seconds[1:])
    assert exact == pytest.approx(seconds[0] + max(high, low + size))
    # favour 1 - x for the longer child and x for the other: both end alike, or one end of [0, 1]
    x = np.clip((size + low - high) / (2 * size), 0.0, 1.0)
    assert relaxed == pytest.approx(seconds[0] + high + x * size, rel=1e-6)


def test_a_chain_is_all_favourites():
    graph = make_graph(dict.fromkeys("abcd", 5), ["a -> b", "b -> c", "c -> d"])
    problem = make_problem(graph, make_topology(2, bandwidth=1.0, latency=0.0), 1.0)
    t = fuse(problem).tasks
    assert relax(t).length_s == pytest.approx(4.0)
    found = favourites(t)
    assert found.child.tolist() == [1, 2, 3, -1]
    assert found.seconds.tolist() == [5, 5, 5, 0]


@pytest.mark.parametrize("seed", range(10))
def test_one_favourite_child_and_one_parent_each(seed):
    problem = random_problem(np.random.default_rng(seed), 60, 3)
    child = favourites(fuse(problem).tasks).child
    given = child[child >= 0]
    assert len(np.unique(given)) == len(given)


def test_tasks_without_edges():
    problem = make_problem(make_graph({"a": 0, "b": 0}), make_topology(2), [1.0, 2.0])
    assert relax(fuse(problem).tasks).length_s == pytest.approx(2.0)
    assert favourites(fuse(problem).tasks).child.tolist() == [-1, -1]
