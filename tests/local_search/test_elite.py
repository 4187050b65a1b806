"""The cross-entropy step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.errors import InputError
from tfplace.local_search.elite import fit_elite
from tfplace.local_search.sampling import device_share
from tfplace.testing import random_devices, random_problem


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), smoothing=st.floats(0, 1), mixing=st.floats(0, 1))
def test_an_update_stays_a_distribution_over_what_is_allowed(seed, smoothing, mixing):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=15, num_devices=3)
    blind = device_share(problem)
    elite = np.stack([random_devices(rng, problem) for _ in range(5)])
    new = fit_elite(blind, elite, blind, smoothing, mixing)
    np.testing.assert_allclose(new.sum(axis=1), 1.0)
    assert (new >= 0).all()
    assert (new[~problem.allowed] == 0).all()


def test_the_frequencies_have_the_least_cross_entropy():
    rng = np.random.default_rng(0)
    elite = rng.integers(0, 3, (6, 4)).astype(np.int32)
    blind = np.full((4, 3), 1 / 3)

    def cross_entropy(p):
        return -np.log(np.maximum(p[np.arange(4), elite], 1e-300)).sum(axis=1).mean()

    least = cross_entropy(fit_elite(blind, elite, blind))
    assert all(least <= cross_entropy(rng.dirichlet(np.ones(3), size=4)) for _ in range(500))


@pytest.mark.parametrize(
    ("present", "elite", "blind", "fractions"),
    [
        (np.ones(2), np.zeros((3, 2), np.int32), np.ones(2), ()),
        (np.ones((2, 2)), np.zeros((3, 2), np.int32), np.ones((2, 3)), ()),
        (np.ones((2, 2)), np.zeros(2, np.int32), np.ones((2, 2)), ()),
        (np.ones((2, 2)), np.zeros((0, 2), np.int32), np.ones((2, 2)), ()),
        (np.ones((2, 2)), np.zeros((3, 3), np.int32), np.ones((2, 2)), ()),
        (np.ones((2, 2)), np.zeros((3, 2), np.int32), np.ones((2, 2)), (1.5,)),
        (np.ones((2, 2)), np.zeros((3, 2), np.int32), np.ones((2, 2)), (0.5, -0.1)),
    ],
)
def test_an_update_refuses_other_shapes(present, elite, blind, fractions):
    with pytest.raises(InputError):
        fit_elite(present, elite, blind, *fractions)


def test_an_update_by_hand():
    """Frequencies among the elite are 2/3 and 1/3, then 1/3 and 2/3."""
    present, blind = np.array([[0.5, 0.5], [0.2, 0.8]]), np.full((2, 2), 0.5)
    elite = np.array([[0, 1], [0, 0], [1, 1]], np.int32)
    np.testing.assert_allclose(fit_elite(present, elite, blind), [[2 / 3, 1 / 3], [1 / 3, 2 / 3]])
    np.testing.assert_allclose(fit_elite(present, elite, blind, 0.5), [[7 / 12, 5 / 12], [4 / 15, 11 / 15]])
    np.testing.assert_allclose(fit_elite(present, elite, blind, 0.5, 0.1), [[0.575, 0.425], [0.29, 0.71]])
    np.testing.assert_allclose(fit_elite(present, elite, blind, 0.0), present)
