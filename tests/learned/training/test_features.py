"""What policies see, against slow loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.group.flow import flow
from tfplace.learned.features.prior import NEVER, prior_logits
from tfplace.learned.features.unit_features import adjacency, neighbours, unit_edges, unit_features
from tfplace.local_search.sampling import device_share
from tfplace.testing import make_graph, make_problem, make_topology, random_problem

problems = st.integers(0, 10_000).map(lambda seed: random_problem(np.random.default_rng(seed), num_ops=25))


@settings(max_examples=40, deadline=None)
@given(problems)
def test_edges_and_adjacency(problem):
    edges, unit_of = flow(problem), problem.grouping.unit_of
    expected = {(unit_of[a], unit_of[b]) for a, b in zip(edges.src, edges.dst, strict=True) if unit_of[a] != unit_of[b]}
    src, dst = unit_edges(problem)
    assert {*zip(src.tolist(), dst.tolist(), strict=True)} == expected and len(src) == len(expected)
    near = adjacency(problem)
    assert near.sum() == len(expected | {(b, a) for a, b in expected})
    np.testing.assert_array_equal(near, near.T)


@settings(max_examples=40, deadline=None)
@given(problems, st.integers(1, 4))
def test_neighbours(problem, count):
    src, dst = unit_edges(problem)
    rows = neighbours(problem, count)
    for unit in range(problem.num_units):
        before = sorted(abs(unit - src[dst == unit]))[:count]
        behind = sorted(abs(unit - dst[src == unit]))[:count]
        padded = [unit, *before, *[0] * (count - len(before)), *behind, *[0] * (count - len(behind))]
        np.testing.assert_allclose(rows[unit], np.array(padded) / problem.num_units, rtol=1e-6)


def test_types_and_shapes_by_hand():
    graph = make_graph({"a": 8, "b": (4, 2)}, ["a -> b"], types={"a": "MatMul", "b": "Split"})
    rows = unit_features(make_problem(graph, make_topology(2)))
    assert rows.shape == (2, 2 + 25)
    np.testing.assert_array_equal(rows[:, :2], [[1, 0], [0, 1]])
    assert rows[0, 2:].any() and np.isfinite(rows).all()


def test_the_prior_is_the_blind_draw_and_leans_towards_a_start():
    problem = random_problem(np.random.default_rng(0), num_ops=20, num_devices=3)
    share, start = device_share(problem), problem.allowed.argmax(axis=1).astype(np.int32)
    logits = prior_logits(problem)
    np.testing.assert_allclose(np.exp(logits), share, atol=1e-12)
    assert (logits[~problem.allowed] == NEVER).all()
    leant = np.exp(prior_logits(problem, start, 0.8))
    np.testing.assert_allclose(leant[np.arange(len(start)), start], 0.8 + 0.2 * share[np.arange(len(start)), start])
    np.testing.assert_allclose(leant.sum(axis=1), 1.0)
    with pytest.raises(ValueError, match=r"lean 1\.0"):
        prior_logits(problem, start, 1.0)
