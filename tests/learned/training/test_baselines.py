"""Baselines and rewards against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfplace.core.stepcost import FAILED_BYTES
from tfplace.errors import InputError
from tfplace.learned.training.baselines import by_step, mean_of_trials, moving_average, standardised
from tfplace.learned.training.rewards import Reward, RewardSettings, failed
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.testing import make_graph, make_problem, make_topology

floats = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20).map(np.array)


def test_the_moving_average_by_hand():
    assert moving_average(-10.0, np.array([-1.0, -3.0]), 0.9) == pytest.approx(-9.2)
    assert moving_average(-10.0, np.array([]), 0.9) == -10.0


@given(st.lists(floats, min_size=1, max_size=5))
def test_the_mean_of_trials_is_their_mean(batches):
    mean, trials = 0.0, 0
    for batch in batches:
        mean = mean_of_trials(mean, trials, batch)
        trials += len(batch)
    assert mean == pytest.approx(np.concatenate(batches).mean(), abs=1e-6)
    assert mean_of_trials(mean, trials, np.array([])) == mean


def test_means_by_step_are_of_the_last_episodes():
    returns = np.array([[100.0, 100.0], [1.0, 2.0], [3.0, 6.0]])
    assert by_step(returns, 2).tolist() == [2.0, 4.0]
    assert by_step(returns[:1], 2).tolist() == [100.0, 100.0]


@given(floats)
@example(np.array([0.0, 2.8e-160]))
def test_standardised_advantages_have_no_mean_and_a_deviation_of_1_or_0(advantage):
    result = standardised(advantage)
    assert result.mean() == pytest.approx(0, abs=1e-6)
    assert result.std() == pytest.approx(1, abs=1e-6) or not result.any()


def test_equal_advantages_are_none():
    assert not standardised(np.full(7, 0.1)).any()
    assert standardised(np.array([])).tolist() == []


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: moving_average(0.0, np.zeros((1, 2)), 0.5), "rewards of shape"),
        (lambda: moving_average(0.0, np.zeros(2), 1.0), "decay 1.0"),
        (lambda: mean_of_trials(0.0, 0, np.zeros((1, 2))), "rewards of shape"),
        (lambda: by_step(np.zeros(3), 1), "returns of shape"),
        (lambda: by_step(np.zeros((0, 3)), 1), "last 1 of 0"),
        (lambda: by_step(np.zeros((2, 3)), 0), "last 0 of 2"),
        (lambda: standardised(np.zeros((2, 3))), "advantage of shape"),
        (lambda: RewardSettings("square"), "scale 'square'"),
        (lambda: RewardSettings(failing=0.0), "failing 0.0"),
        (lambda: reward()(np.zeros(2, np.int64), np.zeros(3)), "bytes and seconds of shapes"),
    ],
)
def test_what_is_refused(call, text):
    with pytest.raises(InputError, match=text):
        call()


def reward(settings=RewardSettings(), seconds=1.0):  # noqa: B008
    """Of a problem whose ops take `seconds` in all."""
    problem = make_problem(make_graph({"a": 8}), make_topology(1, memory=1000), seconds=seconds)
    return Reward(Search(problem, Budget(evaluations=10), 0).context("x"), settings)


def test_rewards_by_hand():
    over, step_s = np.array([0, 5, FAILED_BYTES]), np.array([0.5, 0.01, np.inf])
    failing = {"failing": 4.0, "graded": False}
    assert reward(RewardSettings(**failing), 2.0)(over, step_s).tolist() == [-0.5, -2.0, -2.0]
    assert reward(RewardSettings("linear", **failing), 2.0)(over, step_s).tolist() == [-0.25, -4.0, -4.0]
    assert reward(RewardSettings("log"), 2.0)(over[:1], step_s[:1]).tolist() == [-np.log(0.25)]
    assert reward().worst == -10.0
    assert failed(over, step_s).tolist() == [False, True, True]


def test_missing_bytes_are_graded_and_nothing_is_worse_than_not_to_run():
    """A price of 0.01 units, and 2 for as many bytes as there are in all (see Price)."""
    over, step_s = np.array([0, 500, 10**6, FAILED_BYTES]), np.array([1.0, 1.0, 1.0, np.inf])
    graded = reward(RewardSettings("linear", failing=50.0))
    assert graded(over[:2], step_s[:2]).tolist() == pytest.approx([-1.0, -2.01])
    values = graded(over, step_s)
    assert values[3] == values[2] < -50
    assert graded(over[[0, 3]], step_s[[0, 3]]).tolist() == [-1.0, -50.0]


def test_the_price_follows_the_batch():
    context = Search(make_problem(make_graph({"a": 8}), make_topology(1)), Budget(evaluations=10), 0).context("x")
    adaptive = Reward(context, RewardSettings())
    context.key(np.zeros(1, np.int32))
    adaptive.adapt(np.array([1, 1, 0]))
    assert adaptive.weight > 1
    again = Reward(context, RewardSettings(), adaptive.weight)
    context.key(np.zeros(1, np.int32))
    again.adapt(np.array([0, 1, 0]))
    assert again.weight == pytest.approx(1.0)


def test_a_step_that_takes_no_time_has_a_finite_reward():
    assert np.isfinite(reward(RewardSettings("log"))(np.zeros(1, np.int64), np.zeros(1))).all()
