"""Placeto's network and its episodes."""

import networkx as nx
import numpy as np
import pytest

from tests.gradients import assert_gradients
from tfplace.learning.graph_inputs import graph_inputs
from tfplace.learning.sweep_inputs import SweepInputs, sweep_inputs
from tfplace.policies.networks.sweep import Sweep, Visits, told
from tfplace.policies.placeto import Placeto, PlacetoSettings, _Run
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulate.evaluate import Simulator
from tfplace.study.base import BudgetSpentError
from tfplace.testing import random_problem


def problem(units=20, devices=3, seed=0):
    return random_problem(np.random.default_rng(seed), units, devices, unit=1e-3, ties=False)


def network(inputs, seed=0):
    return Sweep(inputs.sizes[:2], np.random.default_rng(seed), hidden=6, rounds=2)


def policy_of(problem):
    inputs = graph_inputs(problem)
    policy = network(inputs)
    return inputs, policy, told(inputs, sweep_inputs(problem, inputs))


def placements(inputs, count, seed=1):
    shape = inputs.pairs.shape
    return np.random.default_rng(seed).integers(shape[1], size=(count, shape[0])).astype(np.int32)


def test_who_reaches_whom_is_what_networkx_says():
    inputs = graph_inputs(problem(40))
    sweep = sweep_inputs(problem(40), inputs)
    graph = nx.DiGraph(zip(inputs.src.tolist(), inputs.dst.tolist(), strict=True))
    graph.add_nodes_from(range(len(inputs.order)))
    for unit in graph:
        up, down = nx.ancestors(graph, unit), nx.descendants(graph, unit)
        rest = set(graph) - up - down - {unit}
        for row, expected in zip((sweep.ancestors, sweep.descendants, sweep.parallel), (up, down, rest), strict=True):
            assert set(np.flatnonzero(row[unit]).tolist()) == expected
            assert row[unit].sum() == pytest.approx(float(bool(expected)))


def test_gradients_are_those_that_differences_say():
    inputs, policy, tensors = policy_of(problem())
    rng, count, weight = np.random.default_rng(2), 40, 0.3  # more than are computed at a time
    devices = placements(inputs, count)
    current = rng.integers(len(inputs.order), size=count).astype(np.int32)
    visits = Visits(devices, current, devices[:, 0], rng.standard_normal(count).astype(np.float32))

    def loss():
        total = 0.0
        for n in range(count):
            share = policy.share(tensors, devices[n : n + 1], int(current[n]))[0]
            log_share = np.log(np.maximum(share, 1e-30))
            entropy = -float((share * log_share).sum())
            total -= visits.advantage[n] * max(log_share[visits.actions[n]], -50) + weight * entropy
        return total / count

    visits = visits._replace(actions=np.array([np.flatnonzero(inputs.prior[c] > -1e6)[0] for c in current], np.int32))
    found, metrics = policy.gradients(tensors, visits, weight)
    assert metrics["loss"] == pytest.approx(loss(), rel=1e-4)
    assert_gradients(policy.trainable_variables, found, loss, rng, abs_tolerance=2e-3)


def test_the_names_of_devices_do_not_matter():
    inputs, policy, tensors = policy_of(problem())
    devices, names = placements(inputs, 4), np.array([2, 0, 1])
    other = inputs._replace(devices=inputs.devices[names], pairs=inputs.pairs[:, names], prior=inputs.prior[:, names])
    renamed = np.argsort(names)[devices].astype(np.int32)
    again = told(other, SweepInputs(*(getattr(tensors, name).numpy() for name in SweepInputs._fields)))
    for unit in range(0, len(inputs.order), 5):
        expected = policy.share(tensors, devices, unit)[:, names]
        np.testing.assert_allclose(policy.share(again, renamed, unit), expected, rtol=1e-4, atol=1e-6)


def test_the_names_of_units_do_not_matter_but_for_who_was_visited():
    inputs, policy, tensors = policy_of(problem())
    swapped = np.arange(len(inputs.order))
    swapped[:4] = [2, 0, 3, 1]  # all visited before unit 10
    place = np.argsort(swapped)
    rows = {name: getattr(tensors, name).numpy()[swapped] for name in ("units", "pairs", "prior", "weight")}
    square = {name: getattr(tensors, name).numpy()[swapped][:, swapped] for name in SweepInputs._fields}
    edges = {name: place[getattr(tensors, name).numpy()].astype(np.int32) for name in ("src", "dst")}
    devices = placements(inputs, 3)
    found = policy.share(tensors._replace(**rows, **square, **edges), devices[:, swapped], 10)
    np.testing.assert_allclose(found, policy.share(tensors, devices, 10), rtol=1e-4, atol=1e-6)


def test_where_the_others_are_matters():
    inputs, policy, tensors = policy_of(problem())
    devices = placements(inputs, 2)
    share = policy.share(tensors, devices, 10)
    assert np.abs(share[0] - share[1]).max() > 1e-5


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_any_number_of_devices(devices):
    policy = network(graph_inputs(problem()))
    other = problem(30, devices, seed=1)
    inputs = graph_inputs(other)
    share = policy.share(told(inputs, sweep_inputs(other, inputs)), placements(inputs, 2), 3)
    assert share.shape == (2, devices)


# ---- episodes --------------------------------------------------------------------------------------------------------


def run(problem, evaluations=10_000, **settings):
    study = Search(problem, Budget(evaluations=evaluations), 0).study("placeto")
    return _Run(study, PlacetoSettings(hidden=6, rounds=2, **settings), None), study


def test_an_episode_visits_every_unit_once_and_its_rewards_are_the_simulators():
    here = problem()
    episodes, study = run(here)
    found = episodes._visit()
    steps, count = found.actions.shape
    assert steps == here.num_units
    assert count == 4
    simulator, inputs = Simulator(here), episodes.inputs
    for t in range(steps):
        after = found.devices[t].copy()
        after[:, t] = found.actions[t]
        if t + 1 < steps:
            np.testing.assert_array_equal(after, found.devices[t + 1])
        step_s = [simulator(inputs.units_of(row)).step_s for row in after]
        expected = -np.sqrt(np.array(step_s) / episodes.reward.unit_s)
        np.testing.assert_allclose(found.rewards[t + 1], expected, rtol=1e-6)
    moved = int((found.devices[np.arange(steps), :, np.arange(steps)] != found.actions).sum())
    assert study.evaluations == count + moved  # what stays where it is costs nothing


@pytest.mark.parametrize("intermediate", [True, False])
def test_returns_are_what_was_gained_from_a_step_on(intermediate):
    episodes, _ = run(problem(), intermediate=intermediate)
    found = episodes._visit()
    episodes._learn(found)
    end = found.rewards[-1]
    for t, returns in enumerate(episodes.returns.T):
        np.testing.assert_allclose(returns, end - found.rewards[t if intermediate else 0], atol=1e-12)


def test_a_step_that_made_the_placement_faster_is_rewarded():
    """A public copy of Placeto has the sign the other way."""
    episodes, _ = run(problem())
    found = episodes._visit()
    episodes._learn(found)
    seconds = found.rewards**2
    gained = seconds[0] - seconds[-1]
    assert (np.sign(episodes.returns[:, 0]) == np.sign(gained)).all()


@pytest.mark.parametrize(("initial", "same"), [("single", True), ("random", False)])
def test_what_episodes_begin_with(initial, same):
    episodes, _ = run(problem(), initial=initial)
    rows = episodes._begin()
    assert (rows == rows[0]).all() == same


def test_later_episodes_begin_with_the_best():
    episodes, study = run(problem(), initial="best")
    episodes._visit()
    np.testing.assert_array_equal(episodes._begin()[0], episodes.inputs.rows_of(study.best))


def test_a_budget_may_end_in_an_episode():
    episodes, study = run(problem(), evaluations=30)
    with pytest.raises(BudgetSpentError):
        episodes.go()
    assert study.evaluations == 30
    assert study.best is not None


@pytest.mark.parametrize("settings", [{"initial": "none"}, {"episodes": 0}, {"rate": 0.0}])
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}"):
        Placeto(settings=PlacetoSettings(**settings))
