"""GDP's draws: many units together, as likely as each by itself."""

import numpy as np
import pytest
from scipy.special import softmax

from tfplace.group.co_placement import merge
from tfplace.learned.policies.gdp import GdpSettings, learner_of
from tfplace.local_search.sampling import together
from tfplace.testing import random_problem

SETTINGS = GdpSettings(hidden=8, heads=2, rounds=1, layers=1, segment=16, together=8)
SEED = np.array([3, 4], np.int32)


@pytest.fixture(scope="module")
def here():
    return random_problem(np.random.default_rng(0), 40, 3, unit=1e-3, ties=False)


@pytest.fixture
def learner(here):
    return learner_of(here, SETTINGS, np.random.default_rng(1))


def share_of(here, learner, temperature=1.0):
    inputs = learner._inputs
    rows = softmax(learner._network.logits(inputs) / temperature, axis=1)
    share = np.empty_like(rows)
    share[inputs.order] = rows
    return share


def test_few_units_draw_each_for_itself(here):
    order = np.random.default_rng(0).permutation(here.num_units).astype(np.int32)
    np.testing.assert_array_equal(together(here, order, here.num_units), np.arange(here.num_units))
    np.testing.assert_array_equal(together(here, order, 8), merge(here, 8)[order])


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_each_unit_is_drawn_as_often_as_the_network_has_it(here, learner, temperature):
    count = 4000
    drawn = learner.draw(count, SEED, temperature).devices
    for d in range(here.num_devices):
        expected = share_of(here, learner, temperature)[:, d]
        assert np.abs((drawn == d).mean(axis=0) - expected).max() < 4 * 0.5 / np.sqrt(count)


def test_units_of_a_group_that_are_alike_come_to_the_same_device(here, learner):
    share, label = share_of(here, learner), merge(here, SETTINGS.together)
    drawn = learner.draw(2000, SEED).devices
    first = {int(g): int(np.flatnonzero(label == g)[0]) for g in np.unique(label)}
    for unit, group in enumerate(label.tolist()):
        # two intervals of one number: they differ as much as the shares do, at least
        apart = (drawn[:, unit] != drawn[:, first[group]]).mean()
        assert apart <= np.abs(share[unit] - share[first[group]]).sum() + 0.05


def test_what_is_cold_is_where_it_is_likeliest(learner):
    drawn = learner.draw(3, SEED, 1e-6).devices
    assert (drawn == learner.likeliest()).all()


def test_the_same_seed_draws_the_same(learner):
    one, other = (learner.draw(5, SEED, 2.0).devices for _ in range(2))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(learner.sample(5, SEED, 7).devices, learner.draw(5, SEED).devices)
