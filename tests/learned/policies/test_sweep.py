"""Placeto's network and its episodes."""

import networkx as nx
import numpy as np
import pytest

from tests.gradients import assert_gradients
from tfplace.core.search_context import BudgetSpentError
from tfplace.errors import InputError
from tfplace.learned.features.graph_inputs import graph_inputs
from tfplace.learned.features.sweep_inputs import sweep_inputs
from tfplace.learned.features.sweep_state import SweepState, sweep_rows
from tfplace.learned.networks.sweep import Sweep, Sweeps
from tfplace.learned.networks.sweep_layers import filled, scorer, told
from tfplace.learned.policies.placeto import PlacetoScratch, _Run
from tfplace.learned.training.baselines import discounted
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem


def problem(units=20, devices=3, seed=0):
    return random_problem(np.random.default_rng(seed), units, devices, unit=1e-3, ties=False)


def network(seed=0):
    return Sweep(np.random.default_rng(seed), hidden=6, rounds=2)


def policy_of(problem):
    inputs = graph_inputs(problem)
    return inputs, network(), told(inputs, sweep_inputs(inputs))


def placements(inputs, count, seed=1):
    """[count, G] of devices that are allowed."""
    keys = np.random.default_rng(seed).random((count, *inputs.pairs.shape))
    return np.where(inputs.prior > -1e6, keys, -1).argmax(axis=2).astype(np.int32)


def swept(problem, inputs, count, seed=1):
    """As many sweeps from one placement to another."""
    before, after = placements(inputs, count, seed), placements(inputs, count, seed + 1)
    return Sweeps(before, SweepState(sweep_rows(problem, inputs), before).follow(after), after)


def shares(policy, told_of, sweeps):
    """[N, G, D] probabilities of all visits."""
    score = scorer(policy.arrays, told_of, sweeps.before, 2)
    each = [score.share(t, sweeps.relations[:, t]) for t in range(sweeps.before.shape[1])]
    return np.stack(each, axis=1)


def test_who_reaches_whom_is_what_networkx_says():
    inputs = graph_inputs(problem(40))
    sweep = sweep_inputs(inputs)
    graph = nx.DiGraph(zip(inputs.src.tolist(), inputs.dst.tolist(), strict=True))
    graph.add_nodes_from(range(len(inputs.order)))
    for unit in graph:
        up, down = nx.ancestors(graph, unit), nx.descendants(graph, unit)
        rest = set(graph) - up - down - {unit}
        for row, expected in zip((sweep.ancestors, sweep.descendants, sweep.parallel), (up, down, rest), strict=True):
            assert set(np.flatnonzero(row[unit]).tolist()) == expected
            assert row[unit].sum() == pytest.approx(float(bool(expected)))


def test_gradients_are_those_that_differences_say():
    here = problem()
    inputs, policy, told_of = policy_of(here)
    rng, weight = np.random.default_rng(2), 0.3
    sweeps = swept(here, inputs, 4)
    advantage = rng.standard_normal(sweeps.actions.shape)

    def loss():
        share = shares(policy, told_of, sweeps)
        log_share = np.log(np.maximum(share, 1e-30))
        taken = np.take_along_axis(log_share, sweeps.actions[:, :, None], axis=2)[:, :, 0]
        return float(-(advantage * taken).mean() + weight * (share * log_share).sum(axis=2).mean())

    found, metrics = policy.gradients(told_of, sweeps, advantage, weight)
    assert metrics["loss"] == pytest.approx(loss(), rel=1e-4)
    assert_gradients(policy.variables, found, loss, rng, abs_tolerance=2e-3)


def test_the_names_of_devices_do_not_matter():
    here = problem()
    inputs, policy, told_of = policy_of(here)
    sweeps, names = swept(here, inputs, 3), np.array([2, 0, 1])
    other = inputs._replace(devices=inputs.devices[names], pairs=inputs.pairs[:, names], prior=inputs.prior[:, names])
    renamed = Sweeps(np.argsort(names)[sweeps.before], sweeps.relations[:, :, names], None)
    found = shares(policy, told(other, sweep_inputs(other)), renamed)
    np.testing.assert_allclose(found, shares(policy, told_of, sweeps)[:, :, names], rtol=1e-4, atol=1e-6)


def test_the_names_of_units_do_not_matter():
    here = problem()
    inputs, policy, told_of = policy_of(here)
    sweeps, names = swept(here, inputs, 3), np.random.default_rng(0).permutation(len(inputs.order))
    place = np.argsort(names).astype(np.int32)
    rows = {name: getattr(inputs, name)[names] for name in ("order", "units", "pairs", "prior", "weight")}
    other = inputs._replace(**rows, src=place[inputs.src], dst=place[inputs.dst])
    renamed = Sweeps(sweeps.before[:, names], sweeps.relations[:, names], None)
    found = shares(policy, told(other, sweep_inputs(other)), renamed)
    np.testing.assert_allclose(found, shares(policy, told_of, sweeps)[:, names], rtol=1e-4, atol=1e-6)


def test_where_the_others_were_and_are_matters():
    here = problem()
    inputs, policy, told_of = policy_of(here)
    sweeps = swept(here, inputs, 2)
    same = Sweeps(np.repeat(sweeps.before[:1], 2, axis=0), np.repeat(sweeps.relations[:1], 2, axis=0), None)
    for other in (same._replace(before=sweeps.before), same._replace(relations=sweeps.relations)):
        found = shares(policy, told_of, other)
        assert np.abs(found[0] - found[1]).max() > 1e-5


def test_weights_of_another_network_are_refused():
    values = [variable.numpy() for variable in network().variables]
    assert filled(6, values).score.second.w.shape == (24, 1)
    for wrong in (values[:-1], values[1:], [*values[:2], values[4], *values[3:]]):
        with pytest.raises(InputError, match="another version"):
            filled(6, wrong)


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_any_number_of_devices(devices):
    policy = network()
    other = problem(30, devices, seed=1)
    inputs = graph_inputs(other)
    found = shares(policy, told(inputs, sweep_inputs(inputs)), swept(other, inputs, 2))
    assert found.shape == (2, other.num_units, devices)
    np.testing.assert_allclose(found.sum(axis=2), 1, rtol=1e-5)
    assert (found[:, inputs.prior < -1e6] == 0).all()


# ---- episodes --------------------------------------------------------------------------------------------------------


def run(problem, evaluations=10_000, **settings):
    context = Search(problem, Budget(evaluations=evaluations), 0).context("placeto_scratch")
    settings = {"hidden": 6, "rounds": 2, "episodes": 4, **settings}
    return _Run(context, PlacetoSettings(**settings), None), context


def test_an_episode_visits_every_unit_once_and_its_rewards_are_the_simulators():
    here = problem()
    episodes, context = run(here)
    found = episodes._visit()
    before, actions = found.sweeps.before, found.sweeps.actions
    assert actions.shape == (4, here.num_units)
    simulator, inputs = Simulator(here), episodes.inputs
    for t in range(here.num_units + 1):
        now = np.concatenate([actions[:, :t], before[:, t:]], axis=1)
        step_s = [simulator(inputs.units_of(row)).step_s for row in now]
        expected = -np.sqrt(np.array(step_s) / episodes.reward.unit_s)
        np.testing.assert_allclose(found.rewards[:, t], expected, rtol=1e-6)
    assert context.evaluations == 4 + int((before != actions).sum())  # what stays where it is costs nothing


def test_later_rewards_count_for_less():
    episodes, _ = run(problem(), discount=0.5)
    found = episodes._visit()
    episodes._learn(found)
    gained = np.diff(found.rewards, axis=1)
    for t, returns in enumerate(episodes.returns.T):
        np.testing.assert_allclose(returns, gained[:, t:] @ 0.5 ** np.arange(gained.shape[1] - t), atol=1e-12)
    with pytest.raises(InputError, match=r"discount 1\.5"):
        discounted(gained, 1.5)


@pytest.mark.parametrize("intermediate", [True, False])
def test_returns_are_what_was_gained_from_a_step_on(intermediate):
    episodes, _ = run(problem(), intermediate=intermediate, discount=1.0)
    found = episodes._visit()
    episodes._learn(found)
    end = found.rewards[:, -1]
    for t, returns in enumerate(episodes.returns.T):
        np.testing.assert_allclose(returns, end - found.rewards[:, t if intermediate else 0], atol=1e-12)


def test_a_step_that_made_the_placement_faster_is_rewarded():
    """A public copy of Placeto has the sign the other way."""
    episodes, _ = run(problem(), discount=1.0)
    found = episodes._visit()
    episodes._learn(found)
    seconds = found.rewards**2
    gained = seconds[:, 0] - seconds[:, -1]
    assert (np.sign(episodes.returns[:, 0]) == np.sign(gained)).all()


@pytest.mark.parametrize(("initial", "same"), [("single", True), ("random", False)])
def test_what_episodes_begin_with(initial, same):
    episodes, _ = run(problem(), initial=initial)
    rows = episodes._begin()
    assert (rows == rows[0]).all() == same


def test_later_episodes_begin_with_the_best():
    episodes, context = run(problem(), initial="best")
    episodes._visit()
    np.testing.assert_array_equal(episodes._begin()[0], episodes.inputs.rows_of(context.best))


def test_a_budget_may_end_in_an_episode():
    episodes, context = run(problem(), evaluations=30)
    with pytest.raises(BudgetSpentError):
        episodes.go()
    assert context.evaluations == 30
    assert context.best is not None


@pytest.mark.parametrize(
    "settings",
    [{"initial": "none"}, {"episodes": 0}, {"rate": 0.0}, {"temperature": 0.0}, {"rounds": -1}, {"last_rate": -1.0}],
)
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}"):
        PlacetoScratch(settings=PlacetoSettings(**settings))
