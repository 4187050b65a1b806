"""The grouper and the placer of the hierarchical planner."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tfplace.learned.features.unit_features import unit_edges, unit_features
from tfplace.learned.networks.hierarchy import Hierarchy
from tfplace.learned.policies.hierarchical import Hierarchical, HierarchicalSettings
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.testing import random_problem

SETTINGS = HierarchicalSettings(groups=4, hidden=8, embedding=3, groupings=2)


@pytest.fixture
def problem():
    return random_problem(np.random.default_rng(0), num_ops=40, num_devices=3, unit=1e-3)


def hierarchy(problem, start=None, **settings):
    return Hierarchy(
        problem, SETTINGS if not settings else HierarchicalSettings(**settings), np.random.default_rng(0), start
    )


def test_features_of_groups_are_those_of_a_slow_loop(problem):
    learner = hierarchy(problem)
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 3, problem.num_units).astype(np.int32)  # group 3 stays empty
    rows, (src, dst) = unit_features(problem), unit_edges(problem)
    edges = np.zeros((4, 4))
    for a, b in zip(src, dst, strict=True):
        edges[groups[a], groups[b]] += 1
    expected = []
    for g in range(4):
        inside = rows[groups == g]
        near = np.concatenate([edges[g], edges[:, g]])
        mean = inside.mean(axis=0) if len(inside) else np.zeros(rows.shape[1])
        expected.append(np.concatenate([mean, near / max(near.sum(), 1)]))
    np.testing.assert_allclose(learner.group_features(tf.constant(groups)), expected, atol=1e-5)


def test_placements_are_what_was_chosen(problem):
    learner = hierarchy(problem)
    drawn = learner.sample(6, np.array([1, 2], np.int32), 0)
    groups, choice = drawn.choices["groups"], drawn.choices["choice"]
    assert groups.shape == (2, problem.num_units) and choice.shape == (6, 4)
    for row, devices in enumerate(drawn.devices):
        problem.expand(devices)
        wanted = choice[row][groups[row // 3]]
        may = problem.allowed[np.arange(problem.num_units), wanted]
        np.testing.assert_array_equal(devices[may], wanted[may])


def test_gradients_flow_to_every_parameter(problem):
    learner = hierarchy(problem)
    drawn = learner.sample(6, np.array([1, 2], np.int32), 0)
    found, told = learner.gradients(drawn, np.array([1.0, -1.0, 0.5, 2.0, 0.0, 1.0]), np.ones(6))
    assert len(found) == len(learner.variables)
    for gradient, variable in zip(found, learner.variables, strict=True):
        assert np.abs(tf.convert_to_tensor(gradient)).sum() > 0, variable.name
    assert 0 < float(told["grouping_entropy"]) <= np.log(4) + 1e-6


def test_the_gradient_is_that_of_both_terms(problem):
    """Against numbers: the loss by hand is minus the weighted mean of log p(groups) + log p(devices)."""
    learner = hierarchy(problem, groups=4, hidden=8, embedding=3)
    drawn = learner.sample(3, np.array([1, 2], np.int32), 0)
    advantage = np.array([1.0, -2.0, 0.5])
    variable = learner.variables[-1]

    def loss():
        return float(learner.gradients(drawn, advantage, np.ones(3))[1]["loss"])

    gradient = tf.convert_to_tensor(learner.gradients(drawn, advantage, np.ones(3))[0][-1]).numpy()
    direction = np.sign(gradient) / np.sqrt(gradient.size)
    at, step = variable.numpy(), 1e-2
    values = []
    for sign in (1, -1):
        variable.assign(at + sign * step * direction)
        values.append(loss())
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(float((gradient * direction).sum()), rel=0.02)


def test_noise_is_drawn_only_at_first(problem):
    learner = hierarchy(problem, groups=4, hidden=8, embedding=3, noise=0.5, noise_updates=10)
    early, late = (learner.sample(4, np.array([1, 2], np.int32), n).choices["noise"] for n in (9, 10))
    assert np.abs(early).min() > 0 and not late.any()


def test_a_start_has_groups_of_its_own(problem):
    start = problem.allowed.argmax(axis=1).astype(np.int32)
    learner = hierarchy(problem, start)
    drawn = learner.sample(200, np.array([1, 2], np.int32), 0)
    blind = hierarchy(problem).sample(200, np.array([1, 2], np.int32), 0)
    free = problem.allowed.sum(axis=1) > 1
    assert (drawn.devices == start)[:, free].mean() > (blind.devices == start)[:, free].mean() + 0.2


@pytest.mark.slow
def test_the_published_rate_is_too_high_here():
    """Why the default is another: the grouping's entropy is gone after a few updates."""
    problem = random_problem(np.random.default_rng(0), num_ops=60, num_devices=3, unit=1e-3)

    def last_entropy(settings):
        logged = []
        search = Search(problem, Budget(evaluations=160), 0, logged=lambda n, metrics: logged.append(metrics))
        search.run(Hierarchical(settings=dataclasses.replace(settings, hidden=64)), "x")
        return logged[-2]["grouping_entropy"]

    assert last_entropy(HierarchicalSettings.published()) < 0.1
    assert last_entropy(HierarchicalSettings()) > 1.0
