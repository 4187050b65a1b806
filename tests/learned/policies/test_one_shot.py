"""GDP's network: gradients, segments, and what the names of units and devices must not change."""

import numpy as np
import pytest
import tensorflow as tf

from tests.gradients import assert_gradients, widest_sum
from tfplace.learned.features.graph_inputs import graph_inputs
from tfplace.learned.networks.one_shot import OneShot, _told
from tfplace.testing import random_problem

SMALL = {"hidden": 8, "rounds": 2, "heads": 2, "layers": 2}


def problem(units=20, devices=3, seed=0):
    return random_problem(np.random.default_rng(seed), units, devices, unit=1e-3, ties=False)


def network(segment=8, seed=0, **settings):
    return OneShot(np.random.default_rng(seed), **SMALL | {"segment": segment} | settings)


def renamed(inputs, rows):
    """The same graph with its rows in another order."""
    place = np.argsort(rows).astype(np.int32)
    return inputs._replace(
        order=inputs.order[rows],
        units=inputs.units[rows],
        src=place[inputs.src],
        dst=place[inputs.dst],
        pairs=inputs.pairs[rows],
        prior=inputs.prior[rows],
        weight=inputs.weight[rows],
    )


def allowed(logits):
    return np.where(logits > -1e6, logits, 0.0)


@pytest.mark.parametrize("settings", [{}, {"attention": False}, {"conditioned": False}])
def test_gradients_are_those_that_differences_say(settings):
    inputs = graph_inputs(problem())
    policy = network(segment=32, **settings)
    rng = np.random.default_rng(1)
    upstream = rng.standard_normal(inputs.pairs.shape) * (inputs.prior > -1e6)
    found = policy.gradients(inputs, upstream)

    def weighted():
        return float((allowed(policy.logits(inputs)) * upstream).sum())

    assert_gradients(policy.trainable_variables, found, weighted, rng, abs_tolerance=0.05)


def test_what_is_told_to_many_has_its_gradients_added_in_one_order():
    inputs = graph_inputs(problem())
    policy = network()
    told = _told(inputs)
    units, graph = policy._encode(told)
    assert widest_sum(policy._encode_back.get_concrete_function(told, units, graph)) == 2


def test_gradients_through_segments_are_those_of_one_tape():
    inputs = graph_inputs(problem(30))
    policy = network(segment=8)
    upstream = np.random.default_rng(1).standard_normal(inputs.pairs.shape).astype(np.float32)
    with tf.GradientTape() as tape:
        units, graph = policy._encode(_told(inputs))
        memory, parts = policy._placer.start(8), []
        for part in policy._segments(inputs, units):
            logits, memory = policy._placer(part, memory, graph, tf.constant(inputs.devices))
            parts.append(logits)
        loss = tf.reduce_sum(tf.concat(parts, axis=0)[: len(upstream)] * upstream)
    expected = tape.gradient(loss, policy.trainable_variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    for one, other in zip(expected, policy.gradients(inputs, upstream), strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(one), other, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing():
    inputs = graph_inputs(problem(20))
    exact, padded = (network(segment=size).logits(inputs) for size in (len(inputs.order), 64))
    np.testing.assert_allclose(exact, padded, rtol=1e-4, atol=1e-5)


def test_without_attention_segments_change_nothing():
    inputs = graph_inputs(problem(30))
    short, long = (network(segment=size, attention=False).logits(inputs) for size in (4, 64))
    np.testing.assert_allclose(short, long, rtol=1e-4, atol=1e-5)


def test_a_segment_sees_the_one_before_and_none_further_back():
    inputs = graph_inputs(problem(30))
    policy = network(segment=8, rounds=0, conditioned=False, layers=1)
    changed = inputs._replace(units=inputs.units.copy())
    changed.units[0] += 1.0
    differs = np.abs(policy.logits(inputs) - policy.logits(changed)).max(axis=1) > 1e-6
    assert differs[:16].all()
    assert not differs[16:].any()


def test_the_names_of_units_do_not_matter():
    inputs = graph_inputs(problem(20))
    policy = network(segment=32)
    rows = np.random.default_rng(2).permutation(len(inputs.order))
    np.testing.assert_allclose(policy.logits(inputs)[rows], policy.logits(renamed(inputs, rows)), rtol=1e-3, atol=1e-4)


def test_the_names_of_devices_do_not_matter():
    inputs = graph_inputs(problem(20))
    policy = network()
    names = [2, 0, 1]
    other = inputs._replace(devices=inputs.devices[names], pairs=inputs.pairs[:, names], prior=inputs.prior[:, names])
    np.testing.assert_allclose(policy.logits(inputs)[:, names], policy.logits(other), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_any_number_of_devices(devices):
    policy = network()
    inputs = graph_inputs(problem(40, devices, seed=1))
    logits = policy.logits(inputs)
    assert logits.shape == (len(inputs.order), devices)
    assert np.isfinite(logits).all()


def test_what_is_never_allowed_has_no_probability():
    inputs = graph_inputs(problem(20))
    inputs.prior[::3, 1] = -1e9
    logits = network().logits(inputs)
    assert (logits[::3, 1] < -1e6).all()
