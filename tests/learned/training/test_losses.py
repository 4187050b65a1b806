"""Losses against numbers worked out by hand and against numerical gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tfplace.errors import InputError
from tfplace.learned.training.losses import ppo_clip, ppo_kl, reinforce

F8 = tf.float64


def const(values):
    return tf.constant(values, F8)


def gradient(loss, at):
    """[N] of a scalar function at [N], by TensorFlow."""
    x = tf.Variable(at, dtype=F8)
    with tf.GradientTape() as tape:
        value = loss(x)
    return tape.gradient(value, x).numpy()


def numerical(loss, at, step=1e-6):
    """[N] the same by central differences."""
    at = np.asarray(at, np.float64)
    unit = np.eye(at.size).reshape(at.size, *at.shape) * step
    return np.array([(float(loss(const(at + e))) - float(loss(const(at - e)))) / (2 * step) for e in unit]).reshape(
        at.shape
    )


def test_reinforce_by_hand():
    log_prob, advantage = const([-1.0, -2.0, -0.5]), const([2.0, -1.0, 4.0])
    assert float(reinforce(log_prob, advantage)) == pytest.approx(-(-2.0 + 2.0 - 2.0) / 3)
    assert float(reinforce(log_prob, advantage, const([1.0, 0.0, 1.0]))) == pytest.approx(2.0)
    assert float(reinforce(log_prob, advantage, const([0.0, 0.0, 0.0]))) == 0.0
    np.testing.assert_allclose(gradient(lambda x: reinforce(x, advantage), [-1.0, -2.0, -0.5]), [-2 / 3, 1 / 3, -4 / 3])


def test_ppo_clip_by_hand():
    old = const([[0.0], [0.0], [0.0], [0.0]])
    new = const([[math.log(1.5)], [math.log(0.5)], [math.log(1.5)], [math.log(0.5)]])
    advantage = const([1.0, 1.0, -1.0, -1.0])
    # gains stop at 1.2, losses of what became likelier go on, and so on: min(r A, clip(r) A)
    expected = -(1.2 + 0.5 - 1.5 - 0.8) / 4
    assert float(ppo_clip(new, old, advantage, 0.2)) == pytest.approx(expected)
    there = gradient(lambda x: ppo_clip(x, old, advantage, 0.2), new.numpy())
    assert there[0] == 0 and there[3] == 0  # clipped
    np.testing.assert_allclose(there[1:3].ravel(), [-0.5 / 4, 1.5 / 4])


def test_ppo_kl_by_hand():
    old, new = const([[0.0, 0.0]]), const([[math.log(2.0), math.log(3.0)]])
    assert float(ppo_kl(new, old, const([2.0]), const(0.7), 0.5)) == pytest.approx(0.35 - 10.0)


def test_at_the_sampling_policy_ppo_has_the_gradient_of_reinforce():
    rng = np.random.default_rng(0)
    log_prob, advantage = -rng.random((5, 3)), const(rng.normal(size=5))
    expected = np.repeat(gradient(lambda x: reinforce(x, advantage), log_prob.sum(axis=1))[:, None], 3, axis=1)
    for loss in (
        lambda x: ppo_clip(x, const(log_prob), advantage, 0.2),
        lambda x: ppo_kl(x, const(log_prob), advantage, const(0.0), 1.0),
    ):
        np.testing.assert_allclose(gradient(loss, log_prob), expected)


@pytest.mark.parametrize("seed", range(5))
def test_gradients_are_the_numerical_ones(seed):
    rng = np.random.default_rng(seed)
    log_prob, old = -rng.random((4, 3)), const(-rng.random((4, 3)))
    advantage, weight = const(rng.normal(size=4)), const([1.0, 0.0, 1.0, 2.0])
    for loss in (
        lambda x: reinforce(tf.reduce_sum(x, axis=1), advantage, weight),
        lambda x: ppo_clip(x, old, advantage, 0.3, weight=weight),
        lambda x: ppo_kl(x, old, advantage, tf.reduce_mean(tf.square(x - old)), 0.3),
    ):
        np.testing.assert_allclose(gradient(loss, log_prob), numerical(loss, log_prob), rtol=1e-6, atol=1e-9)


def test_no_gradient_through_advantages_and_old_probabilities():
    x = tf.Variable([1.0, 2.0], dtype=F8)
    with tf.GradientTape() as tape:
        loss = reinforce(const([1.0, 1.0]), x) + ppo_clip(const([[1.0], [1.0]]), x[:, None], x, 0.2)
        loss += ppo_kl(const([[1.0], [1.0]]), x[:, None], x, const(0.0), 0.2)
    assert tape.gradient(loss, x) is None


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: reinforce(const([[1.0]]), const([1.0])), "log_prob of rank 2; expected rank 1"),
        (lambda: reinforce(const([1.0]), const([[1.0]])), "advantage of rank 2"),
        (lambda: reinforce(const([1.0]), const([1.0]), const(1.0)), "weight of rank 0"),
        (lambda: ppo_clip(const([1.0]), const([[1.0]]), const([1.0]), 0.2), "log_prob of rank 1; expected rank 2"),
        (lambda: ppo_clip(const([[1.0]]), const([[1.0]]), const([1.0]), 0.0), "clip 0.0"),
        (lambda: ppo_kl(const([[1.0]]), const([[1.0]]), const([1.0]), const([1.0]), 0.2), "divergence of rank 1"),
        (lambda: ppo_kl(const([[1.0]]), const([[1.0]]), const([1.0]), const(1.0), -1.0), "beta -1.0"),
    ],
)
def test_what_is_refused(call, text):
    with pytest.raises(InputError, match=text):
        call()
