"""Random search, hill climbing, annealing, BRKGA and cross-entropy: their steps by hand, and planted optima found."""

from __future__ import annotations

import contextlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import Watched, context_of, wide_problem
from tfplace.core.search_context import BudgetSpentError
from tfplace.errors import InputError
from tfplace.group.coarsen import nested_groups
from tfplace.local_search.devices import single_devices
from tfplace.local_search.penalized_cost import PenalizedCost
from tfplace.local_search.sampling import device_share, pick
from tfplace.placers.annealing import Annealing, _moves
from tfplace.placers.brkga import Brkga, Population, Settings, crossover, encode
from tfplace.placers.cross_entropy import CrossEntropy
from tfplace.placers.hill_climbing import HillClimbing, climb
from tfplace.placers.hill_climbing import _moves as moves_of
from tfplace.placers.random_search import RandomSearch, _draw, _levels
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_problem

ALL = (RandomSearch, HillClimbing, Annealing, Brkga, CrossEntropy)
WITH_STARTS = (HillClimbing, Annealing, Brkga, CrossEntropy)


def search(placer, problem, evaluations=2000, seed=0, evaluator=None):
    context = context_of(problem, evaluations, seed, evaluator)
    with contextlib.suppress(BudgetSpentError):
        placer.place(context)
    return context


# ---- planted optima --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placer", ALL)
def test_two_heavy_chains(placer):
    """Each chain stays on a device of its own; between devices every tensor takes a tenth of an op."""
    edges = [f"{c}{i} -> {c}{i + 1}" for c in "ab" for i in range(9)]
    graph = make_graph({f"{c}{i}": 1000 for c in "ab" for i in range(10)}, edges)
    problem = make_problem(graph, make_topology(2, bandwidth=1e4, latency=0.0))
    over, step_s = min(search(placer(), problem, seed=seed).best_key for seed in range(2))
    # single moves do not get a half of each chain past the other
    assert (over, step_s) == (0, 10.0) or (placer is Annealing and step_s < 10.5)


@pytest.mark.parametrize("placer", ALL)
def test_a_star(placer):
    """A hub of one second, then twelve leaves of one second each over three devices."""
    leaves = [f"leaf{i:02}" for i in range(12)]
    graph = make_graph({"hub": 1, **dict.fromkeys(leaves, 1)}, [f"hub -> {leaf}" for leaf in leaves])
    problem = make_problem(graph, make_topology(3, bandwidth=1e12, latency=0.0))
    over, step_s = search(placer(), problem).best_key
    assert over == 0
    assert step_s == pytest.approx(5.0)


@pytest.mark.parametrize("placer", ALL)
def test_memory_forces_a_split(placer):
    """Sixteen variables of 100 bytes on four devices of 400: only four on each fit, one placement in 68."""
    names = [f"w{i:02}" for i in range(16)]
    graph = make_graph(dict.fromkeys(names, ()), variables=dict.fromkeys(names, 100))
    problem = make_problem(graph, make_topology(4, memory=400))
    context = search(placer(), problem)
    assert context.best_key[0] == 0
    assert np.bincount(context.best).tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize("placer", WITH_STARTS)
def test_memory_that_only_the_host_has(placer):
    """Twelve variables of 100 bytes; two accelerators hold four each, so four have to be on the host."""
    names = [f"w{i:02}" for i in range(12)]
    graph = make_graph(dict.fromkeys(names, ()), variables=dict.fromkeys(names, 100))
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], memory=[10_000, 400, 400])
    assert search(placer(), make_problem(graph, topology, np.tile([10.0, 1.0, 1.0], (12, 1)))).best_key[0] == 0


@pytest.mark.parametrize("placer", ALL)
@pytest.mark.parametrize("seed", range(3))
def test_small_spaces_are_tried_out(placer, seed):
    problem = random_problem(np.random.default_rng(seed), num_ops=6, num_devices=3, tight=True)
    simulator = Simulator(problem)
    choices = [np.flatnonzero(row) for row in problem.allowed]
    every = [simulator.key(np.array(each, np.int32)) for each in itertools.product(*choices)]
    context = search(placer(), problem, evaluations=10**9)
    assert context.best_key == min(every)
    assert context.spent < 1e-5


@pytest.mark.parametrize("placer", WITH_STARTS)
def test_never_worse_than_what_it_starts_from(placer):
    problem = random_problem(np.random.default_rng(3), num_ops=60, num_devices=4)
    start = search(HillClimbing(), problem, seed=1).best
    for evaluations in (1, 300):
        again = search(placer(starts=[start]), problem, evaluations=evaluations, seed=2)
        assert again.best_key <= Simulator(problem).key(start)


@pytest.mark.parametrize("placer", [Annealing, HillClimbing, Brkga])
@pytest.mark.parametrize("tight", [False, True])
def test_giving_up_long_steps_changes_nothing(placer, tight):
    """The limit only spares time: what is evaluated, and what is found, stay the same."""
    problem = wide_problem(5, num_ops=30, num_devices=3, tight=tight)
    limited, full = Watched(problem), Watched(problem, limits=False)
    found = [search(placer(), problem, evaluations=1500, evaluator=e).best_key for e in (limited, full)]
    assert found[0] == found[1]
    assert limited.given_up > 0
    np.testing.assert_array_equal(np.array(limited.asked), np.array(full.asked))


# ---- random search ---------------------------------------------------------------------------------------------------


def test_units_of_a_group_are_drawn_together():
    problem = wide_problem(1, num_ops=40)
    rng = np.random.default_rng(0)
    levels = _levels(problem, mixed=True)
    assert [int(level.max()) + 1 for level in (levels[0], levels[-1])] == [problem.num_units, 1]
    for label in levels:
        for row in _draw(rng, [label], device_share(problem)):
            assert all(len(np.unique(row[label == group])) == 1 for group in np.unique(label))
    assert len(_levels(problem, mixed=False)) == 1


def test_a_host_is_drawn_seldom_and_where_it_must_be():
    graph = make_graph(dict.fromkeys("abcdefghijklm", 10), cpu_only=["m"])
    problem = make_problem(graph, make_topology(3, types=["CPU", "GPU", "GPU"]))
    share = device_share(problem)
    np.testing.assert_allclose(share[0], np.array([0.01, 1.0, 1.0]) / 2.01)
    np.testing.assert_array_equal(share[12], [1.0, 0.0, 0.0])
    drawn = pick(np.random.default_rng(0).random((4000, 13)), share)
    assert (drawn[:, 12] == 0).all()
    assert 0.003 < (drawn[:, :12] == 0).mean() < 0.007


# ---- hill climbing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tight", [False, True])
def test_a_climb_ends_where_no_move_helps(seed, tight):
    problem = wide_problem(seed, num_devices=3, tight=tight)
    labels = [np.arange(problem.num_units, dtype=np.int32), *nested_groups(problem, [6])]
    context = context_of(problem, evaluations=10**6, seed=seed)
    devices = random_devices(np.random.default_rng(seed), problem)
    start = context.key(devices)
    climb(context, [moves_of(problem, label) for label in reversed(labels)], devices, start)
    simulator = Simulator(problem)
    reached = simulator.key(devices)
    assert reached <= start
    for label in labels:
        for group, device in itertools.product(range(int(label.max()) + 1), range(3)):
            assert simulator.key(np.where(label == group, device, devices).astype(np.int32)) >= reached


def test_a_climb_from_an_optimum_tries_each_move_once():
    """Two units on two devices, the present ones left out, and the one cluster of both: three evaluations."""
    problem = make_problem(make_graph(dict.fromkeys("ab", 4)), make_topology(2))
    context = context_of(problem)
    devices = np.array([0, 1], np.int32)
    key = context.key(devices)
    climb(context, [moves_of(problem, np.array(label)) for label in ([0, 0], [0, 1])], devices, key)
    assert devices.tolist() == [0, 1]
    assert context.left.evaluations == 2000 - 1 - (2 + 2)


def test_new_climbs_follow_until_the_budget_is_spent():
    context = search(HillClimbing(clusters=False), wide_problem(2), evaluations=3000)
    assert context.spent == 1.0


def test_pinned_clusters_have_no_moves():
    graph = make_graph(dict.fromkeys("abc", 4), cpu_only=["b"])
    problem = make_problem(graph, make_topology(3, types=["CPU", "GPU", "GPU"]))
    moves = moves_of(problem, np.arange(3, dtype=np.int32))
    assert [(units.tolist(), d) for units, d in moves] == [([u], d) for u in (0, 2) for d in range(3)]


# ---- annealing -------------------------------------------------------------------------------------------------------


def metropolis(problem, evaluations, seed, hot, cold):
    """Every placement evaluated, by the textbook: a uniform draw against exp(-worse / temperature), after the fact."""
    simulator, rng = Simulator(problem), np.random.default_rng(seed)
    asked = [*single_devices(problem)]
    costs = [simulator.key(devices)[1] for devices in asked]
    devices, energy = asked[int(np.argmin(costs))].copy(), min(costs)
    mean = energy / problem.num_units
    for unit, device, exponential in _moves(problem, rng):
        if device == devices[unit]:
            continue
        if len(asked) == evaluations:
            return asked
        temperature = mean * hot * (cold / hot) ** (len(asked) / evaluations)
        trial = devices.copy()
        trial[unit] = device
        asked.append(trial)
        worse = simulator.key(trial)[1] - energy
        if worse <= 0 or math.exp(-exponential) <= math.exp(-worse / temperature):
            devices, energy = trial, energy + worse
    return asked


@pytest.mark.parametrize("hot", [0.3, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_annealing_is_the_metropolis_walk(seed, hot):
    problem = wide_problem(seed, num_ops=25, num_devices=3)
    watched = Watched(problem)
    search(Annealing(hot=hot, cold=0.05), problem, evaluations=800, seed=seed, evaluator=watched)
    expected = metropolis(problem, 800, seed, hot, 0.05)
    np.testing.assert_array_equal(np.array(watched.asked), np.array(expected))


def test_moves_are_spread_evenly_over_what_may_move():
    graph = make_graph(dict.fromkeys("abcd", 4), cpu_only=["d"])
    problem = make_problem(graph, make_topology(3, types=["CPU", "GPU", "GPU"]))
    drawn = [*itertools.islice(_moves(problem, np.random.default_rng(0)), 20_000)]
    units, devices, draws = (np.array(column) for column in zip(*drawn, strict=True))
    assert np.abs(np.bincount(units) / 20_000 - 1 / 3).max() < 0.02
    assert 0.003 < (devices == 0).mean() < 0.011  # a fiftieth of the moves goes anywhere, a third of it to the host
    assert abs((devices == 1).mean() - 0.5) < 0.02
    assert draws.mean() == pytest.approx(1.0, abs=0.05)


def test_nothing_to_move():
    problem = make_problem(make_graph(dict.fromkeys("abc", 4), cpu_only="abc"), make_topology(2, types=["CPU", "GPU"]))
    assert [*_moves(problem, np.random.default_rng(0))] == []


# ---- BRKGA -----------------------------------------------------------------------------------------------------------


def test_children_have_the_elite_key_with_probability_rho():
    rng = np.random.default_rng(0)
    elite, other = np.zeros((200, 100)), np.ones((200, 100))
    children = crossover(rng, elite, other, 0.7)
    assert set(np.unique(children)) == {0.0, 1.0}
    assert (children == 0).mean() == pytest.approx(0.7, abs=4 * math.sqrt(0.21 / 20_000))
    assert 0.55 < (children == 0).mean(axis=0).min() <= (children == 0).mean(axis=0).max() < 0.85
    np.testing.assert_array_equal(crossover(rng, elite, other, 1.0), elite)


class Recorded(Population):
    """Keeps each generation's keys and energies."""

    def _generation(self, context, share):
        before = self.keys, self.energy
        super()._generation(context, share)
        self.pairs = [*getattr(self, "pairs", []), (*before, self.keys, self.energy)]


def test_a_generation_keeps_the_elite_and_draws_the_rest():
    problem = wide_problem(4, num_ops=20, num_devices=3)
    context = context_of(problem, evaluations=300)
    share = device_share(problem)
    constants = Settings(population=20, elite=0.2, mutants=0.15, rho=0.7)
    population = Recorded(np.zeros((0, problem.num_units)), PenalizedCost(context, (0, 1.0)), constants)
    with pytest.raises(BudgetSpentError):
        population.evolve(context)
    simulator = Simulator(problem)
    assert len(population.pairs) == (300 - 20) // 16
    for keys, energy, new_keys, new_energy in population.pairs:
        order = np.argsort(energy, kind="stable")
        np.testing.assert_array_equal(new_keys[:4], keys[order[:4]])
        np.testing.assert_array_equal(new_energy[:4], energy[order[:4]])
        known = np.concatenate([keys[order[:4]], keys[order[4:]]])
        for child in new_keys[4:17]:
            assert all(key in known[:, gene] for gene, key in enumerate(child))
        assert not np.isin(new_keys[17:], keys).any()
        for row, e in zip(pick(new_keys, share), new_energy, strict=True):
            assert math.isinf(e) or e == simulator.key(row)[1]
    best = [pair[3].min() for pair in population.pairs]
    assert best == sorted(best, reverse=True)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), num_devices=st.integers(1, 4))
def test_encode_is_the_inverse_of_pick(seed, num_devices):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=20, num_devices=num_devices)
    devices = random_devices(rng, problem)
    np.testing.assert_array_equal(pick(encode(devices, device_share(problem))[None], device_share(problem))[0], devices)


def test_finer_groups_inherit_the_keys():
    population = Population(np.array([[0.1, 0.9]]), PenalizedCost(context_of(wide_problem(0)), (0, 1.0)), Settings())
    population.refine(np.array([0, 1, 1, 0]))
    assert population.keys.tolist() == [[0.1, 0.9, 0.9, 0.1]]


@pytest.mark.parametrize("wrong", [{"elite": 0.9}, {"population": 1}, {"mutants": 0.8}])
def test_settings_leave_room_for_children(wrong):
    with pytest.raises(InputError, match="room for children"):
        Settings(**wrong)


# ---- cross-entropy ---------------------------------------------------------------------------------------------------


def test_groups_are_parted_where_the_start_parts_them():
    """Leaning on the start with all the probability there is, nothing but the start is drawn."""
    problem = wide_problem(0, num_ops=40, num_devices=3)
    start = random_devices(np.random.default_rng(1), problem)
    watched = Watched(problem)
    search(CrossEntropy(starts=[start], lean=1.0, mixing=0.0), problem, evaluations=120, evaluator=watched)
    np.testing.assert_array_equal(np.array(watched.asked), np.tile(start, (120, 1)))
