"""Lessons of GDP."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from tfplace.learned.policies.gdp import GdpSettings
from tfplace.learned.training.parameters import Parameters
from tfplace.local_search.sampling import device_share, pick
from tfplace.pretraining.teacher import Known
from tfplace.pretraining.trainable_gdp import TrainableGdp
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem


def lesson_of(seed=0):
    problem = random_problem(np.random.default_rng(seed), 20, 3, unit=1e-3, ties=False)
    settings = GdpSettings(hidden=8, heads=2, rounds=1, layers=1, segment=16)
    settings = replace(settings, train=replace(settings.train, batch=32))
    trainable = TrainableGdp(seed, settings)
    rows = pick(np.random.default_rng(seed).random((1, problem.num_units)), device_share(problem))[0]
    return trainable, trainable.lesson(problem, Known(rows, Simulator(problem).key(rows)))


def test_what_is_imitated_becomes_likelier():
    trainable, lesson = lesson_of()
    losses, parameters = [], Parameters(trainable.variables, 0.02)
    for _ in range(60):
        taught = trainable.imitate(lesson, np.random.default_rng(0))
        losses.append(taught.metrics["loss"])
        parameters.descend(taught.gradients, 0.02, 1.0)
    assert losses[-1] < 0.8 * losses[0]


def test_the_gradient_of_imitation_is_that_of_its_loss():
    trainable, lesson = lesson_of()
    taught = trainable.imitate(lesson, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    ways = [rng.standard_normal(v.shape).astype(np.float32) for v in trainable.variables]
    slope = sum(float((g.numpy() * way).sum()) for g, way in zip(taught.gradients, ways, strict=True))
    ends = []
    for sign in (1, -2):  # from one side to the other
        for variable, way in zip(trainable.variables, ways, strict=True):
            variable.assign_add(sign * 1e-3 * way)
        ends.append(trainable.imitate(lesson, np.random.default_rng(0)).metrics["loss"])
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=0.05, abs=1e-3)


def test_reinforcement_makes_what_is_drawn_better():
    trainable, lesson = lesson_of(2)
    rng = np.random.default_rng(0)
    rewards, parameters = [], Parameters(trainable.variables, 0.02)
    for _ in range(60):
        taught = trainable.reinforce(lesson, rng)
        rewards.append(taught.metrics["reward"])
        parameters.descend(taught.gradients, 0.02, 1.0)
    assert np.mean(rewards[-10:]) > np.mean(rewards[:10]) + 0.05


def test_sharper_choices_are_likelier():
    trainable, lesson = lesson_of(3)

    def likeliest():
        share = softmax(trainable._network.logits(lesson.inputs) - lesson.inputs.prior, axis=1)
        return share.argmax(axis=1), share.max(axis=1)

    where, share = likeliest()
    trainable.sharpen()
    again, sharper = likeliest()
    np.testing.assert_array_equal(where, again)
    assert (sharper > share).all()


def test_an_examination_is_of_steps_over_the_best_known():
    trainable, lesson = lesson_of(4)
    found = trainable.examine(lesson, np.random.default_rng(0))
    assert found["best"] <= found["once"] * (1 + 1e-12)
    assert found == trainable.examine(lesson, np.random.default_rng(0))
