"""Lessons of Placeto: what is imitated, and devices that are alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.core.constraints import Constraints
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.group.problem import formulate
from tfplace.learned.training.parameters import Parameters
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.local_search.sampling import device_share, pick
from tfplace.pretraining.corpus import held_out
from tfplace.pretraining.device_symmetry import alike, named_by_use
from tfplace.pretraining.teacher import Known
from tfplace.pretraining.trainable import reward
from tfplace.pretraining.trainable_placeto import TrainablePlaceto
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem
from tfplace.testing.graphs import random_graph


def on(topology, seed=0, ops=40):
    graph, boxes = random_graph(np.random.default_rng(seed), ops), Topology.preset(topology)
    return formulate(graph, boxes, analytic_costs(graph, boxes), Constraints())


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("4xP100", [0, 1, 1, 1, 1]),
        ("2xV100-PCIe+2xP100", [0, 1, 2, 1, 2]),
        ("8xK80", [0, 1, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_which_devices_are_alike(topology, expected):
    assert alike(on(topology)).tolist() == expected


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(["2xP100", "4xP100", "8xP100", "2xV100-PCIe+2xP100", "8xV100-NVLink"]))
def test_names_by_use_change_names_alone(seed, topology):
    problem = on(topology, seed % 7)
    rng = np.random.default_rng(seed)
    rows = pick(rng.random((1, problem.num_units)), device_share(problem))[0]
    first = alike(problem)
    named = named_by_use(rows, first)
    name = dict(zip(rows.tolist(), named.tolist(), strict=True))
    np.testing.assert_array_equal(named, [name[d] for d in rows.tolist()])
    assert len(set(name.values())) == len(name)
    np.testing.assert_array_equal(first[named], first[rows])
    every = np.arange(problem.num_units)
    np.testing.assert_array_equal(problem.unit_seconds[every, named], problem.unit_seconds[every, rows])
    for kind in np.unique(first):
        members = np.flatnonzero(first == kind)
        _, at = np.unique(named, return_index=True)
        used = [d for d in named[np.sort(at)] if first[d] == kind]
        assert used == members[: len(used)].tolist()


def lesson_of(problem, seed=0, draws=6):
    trainable = TrainablePlaceto(seed, PlacetoSettings(groups=64, hidden=6, rounds=2, draws=draws))
    rows = pick(np.random.default_rng(seed).random((1, problem.num_units)), device_share(problem))[0]
    return trainable, trainable.lesson(problem, Known(rows, Simulator(problem).key(rows))), rows


def test_what_is_imitated_becomes_likelier():
    problem = random_problem(np.random.default_rng(0), 20, 3, unit=1e-3, ties=False)
    trainable, lesson, _ = lesson_of(problem)
    rng = np.random.default_rng(0)
    losses, parameters = [], Parameters(trainable.variables, 0.01)
    for _ in range(60):
        taught = trainable.imitate(lesson, rng)
        losses.append(taught.metrics["loss"])
        parameters.descend(taught.gradients, 0.01, 1.0)
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])


def test_the_lesson_is_the_placement_that_is_known():
    problem = random_problem(np.random.default_rng(1), 20, 3, unit=1e-3, ties=False)
    _, lesson, rows = lesson_of(problem)
    np.testing.assert_array_equal(lesson.inputs.units_of(lesson.best), rows)  # no two devices are alike
    assert lesson.best_s == pytest.approx(Simulator(problem).key(rows)[1])


def test_reinforcement_makes_what_is_drawn_better():
    problem = random_problem(np.random.default_rng(2), 20, 3, unit=1e-3, ties=False)
    trainable, lesson, _ = lesson_of(problem, draws=12)
    rng = np.random.default_rng(0)
    rewards, parameters = [], Parameters(trainable.variables, 0.01)
    for _ in range(60):
        taught = trainable.reinforce(lesson, rng)
        rewards.append(taught.metrics["reward"])
        parameters.descend(taught.gradients, 0.01, 1.0)
    assert np.mean(rewards[-10:]) > np.mean(rewards[:10]) + 0.05


def test_an_examination_is_of_steps_over_the_best_known():
    problem = random_problem(np.random.default_rng(3), 20, 3, unit=1e-3, ties=False)
    trainable, lesson, _ = lesson_of(problem)
    found = trainable.examine(lesson, np.random.default_rng(0))
    once = lesson.sweeper.sweep(trainable._network.arrays, lesson.first[None])[0][0]
    step_s = Simulator(problem).key(lesson.inputs.units_of(once))[1]
    assert found["once"] == pytest.approx(step_s / lesson.best_s)
    assert found["best"] <= found["once"] * (1 + 1e-12)
    assert found == trainable.examine(lesson, np.random.default_rng(0))


def test_sharper_choices_are_likelier():
    problem = random_problem(np.random.default_rng(4), 20, 3, unit=1e-3, ties=False)
    trainable, lesson, _ = lesson_of(problem)

    def entropy():
        return trainable.reinforce(lesson, np.random.default_rng(0)).metrics["entropy"]

    before = entropy()
    trainable.sharpen()
    assert entropy() < before


def test_rewards_count_what_does_not_fit():
    problem = random_problem(np.random.default_rng(5), 20, 3, unit=1e-3)
    found = reward(problem, np.array([0, 0, 1, 10**9]), np.array([1.0, 2.0, 1.0, 1.0]))
    assert found[0] == 0
    assert found[0] > found[2] > found[3]
    assert found[1] == pytest.approx(-np.log(2))


def test_the_split_depends_on_names_alone():
    names = [f"model{i}" for i in range(20)]
    assert held_out(names) == held_out(reversed(names))
    assert len(held_out(names)) == 5
