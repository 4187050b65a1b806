"""The networks against slow ones, and against what probabilities are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tests.gradients import widest_sum
from tfplace.learned.features.prior import NEVER
from tfplace.learned.networks.attentional import Attentional
from tfplace.learned.networks.fan_out import fan_out
from tfplace.learned.networks.initial import draw_weights
from tfplace.learned.networks.lstm import Lstm

STEPS, BATCH, INPUTS, HIDDEN = 9, 4, 7, 12


@pytest.fixture
def inputs():
    return tf.random.stateless_normal([STEPS, BATCH, INPUTS], seed=[1, 2])


@pytest.fixture
def pair(inputs):
    """An LSTM and Sonnet's with the same weights."""
    ours, theirs = Lstm(INPUTS, HIDDEN), snt.LSTM(HIDDEN)
    theirs(inputs[0], theirs.initial_state(BATCH))
    np.testing.assert_array_equal(ours.bias, theirs.b)
    draw_weights(ours.trainable_variables, np.random.default_rng(0))
    ours.bias.assign_add(tf.random.stateless_normal([4 * HIDDEN], seed=[5, 6]))
    theirs.input_to_hidden.assign(ours.w_input)
    theirs.hidden_to_hidden.assign(ours.w_hidden)
    theirs.b.assign(ours.bias)
    return ours, theirs


def gradients(run, inputs, variables):
    """[T, B, H] outputs and the gradients of a weighted sum of them."""
    weight = tf.random.stateless_normal([STEPS, BATCH, HIDDEN], seed=[3, 4])
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        out = run(inputs)
        total = tf.reduce_sum(out * weight)
    return out, tape.gradient(total, [inputs, *variables])


@pytest.mark.parametrize("compiled", [False, True])
def test_the_lstm_and_its_gradients_are_sonnets(inputs, pair, compiled):
    ours, theirs = pair
    run = tf.function(lambda x: ours.run(ours.project(x))) if compiled else lambda x: ours.run(ours.project(x))
    out, mine = gradients(run, inputs, [ours.w_input, ours.w_hidden, ours.bias])
    expected, other = gradients(
        lambda x: snt.static_unroll(theirs, x, theirs.initial_state(BATCH))[0],
        inputs,
        [theirs.input_to_hidden, theirs.hidden_to_hidden, theirs.b],
    )
    np.testing.assert_allclose(out, expected, atol=1e-6)
    for a, b in zip(mine, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_sonnets_own_lstm_for_whole_sequences_still_has_other_gradients_than_its_cell(inputs, pair):
    """Why there is an `Lstm` here. If this fails, it has been mended: see which of the two is quicker."""
    _, cell = pair
    whole = snt.UnrolledLSTM(HIDDEN)
    whole(inputs, whole.initial_state(BATCH))
    whole.input_to_hidden.assign(cell.input_to_hidden)
    whole.hidden_to_hidden.assign(cell.hidden_to_hidden)
    whole.b.assign(cell.b)
    ways = (
        (lambda x: whole(x, whole.initial_state(BATCH))[0], whole),
        (lambda x: snt.static_unroll(cell, x, cell.initial_state(BATCH))[0], cell),
    )
    (out, mine), (expected, other) = (
        gradients(run, inputs, [core.input_to_hidden, core.hidden_to_hidden, core.b]) for run, core in ways
    )
    np.testing.assert_allclose(out, expected, atol=1e-6)
    assert all(np.abs(a - b).max() > 0.1 for a, b in zip(mine, other, strict=True))


def test_one_step_at_a_time_is_the_same(inputs, pair):
    lstm, _ = pair
    state, outputs = lstm.zeros(BATCH), []
    for t in range(STEPS):
        state = lstm.step(lstm.project(inputs[t]), state)
        outputs.append(state.hidden)
    np.testing.assert_allclose(tf.stack(outputs), lstm.run(lstm.project(inputs)), atol=1e-6)


def network(groups=3, devices=2, **settings):
    net = Attentional(5, devices, hidden=6, embedding=3, **settings)
    draw_weights(net.trainable_variables, np.random.default_rng(0))
    features = tf.random.stateless_normal([groups, 5], seed=[7, 8])
    return net, features


VARIANTS = [{}, {"bidirectional": True}, {"clip": 2.0, "temperature": 3.0}]


@pytest.mark.parametrize("settings", VARIANTS)
def test_the_probabilities_of_all_placements_sum_to_1(settings):
    net, features = network(**settings)
    everything = np.array([*itertools.product(range(2), repeat=3)], np.int32)
    prior = tf.constant([[0.0, 1.0], [0.0, 0.0], [-2.0, 0.5]])
    log_prob = net.distribution(features, prior, everything).log_prob(everything)
    assert float(tf.reduce_sum(tf.exp(tf.reduce_sum(log_prob, axis=1)))) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("settings", VARIANTS)
def test_samples_have_the_distribution_that_is_trained(settings):
    """Frequencies of all 8 placements among 20,000 draws, within four deviations."""
    net, features = network(**settings)
    for variable in net.trainable_variables:  # far from uniform
        variable.assign(2.0 * variable)
    prior, count = tf.constant([[0.0, 1.0], [0.0, 0.0], [-1.0, 0.5]]), 20_000
    draws = net.sample(features, prior, count, tf.constant([1, 2])).numpy()
    everything = np.array([*itertools.product(range(2), repeat=3)], np.int32)
    log_prob = net.distribution(features, prior, everything).log_prob(everything)
    expected = np.exp(tf.reduce_sum(log_prob, axis=1).numpy())
    seen = np.bincount(draws @ [4, 2, 1], minlength=8) / count
    assert np.all(np.abs(seen - expected) < 4 * np.sqrt(expected * (1 - expected) / count) + 1e-9)
    assert expected.max() > 0.2


def test_what_is_never_allowed_is_never_drawn():
    net, features = network(groups=4, devices=3)
    prior = tf.constant([[0.0, NEVER, 0.0], [NEVER, 0.0, NEVER], [0.0, 0.0, 0.0], [NEVER, NEVER, 0.0]])
    draws = net.sample(features, prior, 2000, tf.constant([1, 2])).numpy()
    assert not np.any(draws[:, 0] == 1)
    assert np.all(draws[:, 1] == 1) and np.all(draws[:, 3] == 2)
    choice = net.distribution(features, prior, draws)
    assert np.isfinite(choice.log_prob(draws)).all() and np.isfinite(choice.entropy()).all()


def test_the_same_seed_draws_the_same():
    net, features = network(groups=20)
    draw = [net.sample(features, tf.zeros([20, 2]), 5, tf.constant([1, seed])).numpy() for seed in (2, 2, 3)]
    np.testing.assert_array_equal(draw[0], draw[1])
    assert (draw[0] != draw[2]).any()


@pytest.mark.parametrize("settings", VARIANTS)
def test_gradients_flow_to_every_parameter(settings):
    net, features = network(groups=6, **settings)
    devices = tf.constant([[0, 1, 0, 0, 1, 1], [1, 1, 0, 1, 0, 1]])
    with tf.GradientTape() as tape:
        log_prob = net.distribution(features, tf.zeros([6, 2]), devices).log_prob(devices)
        total = tf.reduce_sum(log_prob)
    found = tape.gradient(total, net.trainable_variables)
    assert len(found) == len({v.ref() for v in net.trainable_variables}) >= 9
    for gradient, variable in zip(found, net.trainable_variables, strict=True):
        assert gradient is not None and np.abs(tf.convert_to_tensor(gradient)).sum() > 0, variable.name


def test_first_weights():
    matrix, vector = tf.Variable(tf.zeros([400, 50])), tf.Variable(tf.ones(7))
    draw_weights([matrix, vector], np.random.default_rng(0))
    values = matrix.numpy()
    assert np.abs(values).max() <= 2 / 20 + 1e-6
    assert values.std() == pytest.approx(0.88 / 20, rel=0.02)  # of a normal distribution cut off at 2 deviations
    assert vector.numpy().tolist() == [1.0] * 7


def test_a_fan_out_is_one_tensor_many_times_with_the_sum_of_the_gradients():
    @tf.function
    def run(x, weight):
        with tf.GradientTape() as tape:
            tape.watch(x)
            read = fan_out(x, 3)
            total = sum(tf.reduce_sum(w * part) for w, part in zip(tf.unstack(weight), read, strict=True))
        return read, tape.gradient(total, x)

    x, weight = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.random.stateless_normal([3, 2, 2], seed=[1, 2])
    read, found = run(x, weight)
    for part in read:
        np.testing.assert_array_equal(part, x)
    np.testing.assert_allclose(found, tf.reduce_sum(weight, axis=0), rtol=1e-6)
    assert widest_sum(run.get_concrete_function(x, weight)) == 0
