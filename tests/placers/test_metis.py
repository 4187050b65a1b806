"""Parts of a k-way partition on devices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.group.parts import assign_parts, device_shares, fit_variables, link_slowness
from tfplace.group.unit_graph import unit_graph, variable_bytes
from tfplace.placers.metis import Metis
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_problem
from tfplace.testing.placers import run_placer


def cliques(count, size=6, seconds=1.0, topology=None, **settings):
    """Cliques of ops that exchange much, joined into a ring by edges that carry little."""
    names = [f"{c}{i}" for c in "abcdefgh"[:count] for i in range(size)]
    heavy = [f"{c}{i} -> {c}{j}" for c in "abcdefgh"[:count] for i in range(size) for j in range(i + 1, size)]
    light = [f"{a}{size - 1}:1 -> {b}0" for a, b in itertools.pairwise("abcdefgh"[:count])]
    graph = make_graph(dict.fromkeys(names, (10**8, 8)), heavy + light, **settings)
    return make_problem(graph, topology or make_topology(count), seconds)


def test_cliques_stay_whole_and_apart():
    problem = cliques(3)
    placed = run_placer(Metis(), problem).reshape(3, 6)
    assert all(len({*row}) == 1 for row in placed)
    assert len({*placed[:, 0]}) == 3


def test_work_in_proportion_to_speed():
    topology = make_topology(2)
    graph = make_graph(dict.fromkeys((f"op{i}" for i in range(60)), 4), [f"op{i} -> op{i + 1}" for i in range(59)])
    problem = make_problem(graph, topology, np.tile([1.0, 3.0], (60, 1)))
    np.testing.assert_allclose(device_shares(problem, np.array([0, 1])), [0.75, 0.25])
    placed = np.bincount(run_placer(Metis(), problem, evaluations=1), minlength=2)
    assert 42 <= placed[0] <= 48


def test_the_host_has_no_part():
    problem = cliques(2, topology=make_topology(3, types=["CPU", "GPU", "GPU"]), cpu_only=["a3"])
    placed = run_placer(Metis(), problem)
    assert np.flatnonzero(placed == 0).tolist() == [3]


def test_parts_that_exchange_much_are_neighbours():
    """Four parts in pairs, devices in pairs of fast links that lie otherwise than the parts' numbers."""
    slow = {(a, b): 1e6 for a, b in itertools.permutations(range(4), 2) if {a, b} not in ({0, 2}, {1, 3})}
    fast = dict.fromkeys(((0, 2), (2, 0), (1, 3), (3, 1)), 1e9)
    graph = make_graph(dict.fromkeys("abcd", 10**6), ["a -> b", "c -> d", "^b -> c"])
    problem = make_problem(graph, make_topology(4, bandwidth=slow | fast, latency=0.0))
    home = assign_parts(problem, unit_graph(problem), np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32))
    assert sorted(home.tolist()) == [0, 1, 2, 3]
    assert {*map(frozenset, (home[:2].tolist(), home[2:].tolist()))} == {frozenset((0, 2)), frozenset((1, 3))}


def test_a_part_goes_near_the_device_its_ops_are_bound_to():
    """Part 1 reads from the host; device 1 (GPU:0) is nearer to it than device 2."""
    bandwidth = {(0, 1): 1e9, (1, 0): 1e9, (0, 2): 1e6, (2, 0): 1e6, (1, 2): 1e8, (2, 1): 1e8}
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], bandwidth=bandwidth, latency=0.0)
    graph = make_graph({"text": 10**6, "a": 4, "b": 4}, ["text -> b"], cpu_only=["text"])
    problem = make_problem(graph, topology)
    home = assign_parts(problem, unit_graph(problem), np.array([-1, 0, 1], np.int32), np.array([1, 2], np.int32))
    assert home.tolist() == [2, 1]


def test_parts_only_change_places_with_devices_as_fast():
    graph = make_graph({"text": 10**6, "a": 4, "b": 4}, ["text -> b"], cpu_only=["text"])
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], bandwidth={(0, 1): 1e9, (1, 0): 1e9}, latency=0.0)
    problem = make_problem(graph, topology, np.tile([1.0, 1.0, 2.0], (3, 1)))
    part, devices = np.array([-1, 0, 1], np.int32), np.array([1, 2], np.int32)
    assert assign_parts(problem, unit_graph(problem), part, devices).tolist() == [1, 2]


def test_parts_never_share_a_device():
    speeds = 1 + 0.0045 * np.arange(5)  # each is alike its neighbours, and the first unlike the last
    for seed in range(20):
        rng = np.random.default_rng(seed)
        names = [f"n{i}" for i in range(5)]
        edges = [f"{a} -> {b}" for a, b in itertools.combinations(names, 2) if rng.random() < 0.6]
        problem = make_problem(
            make_graph(dict.fromkeys(names, 10), edges), make_topology(5), np.tile(1 / speeds, (5, 1))
        )
        every = np.arange(5, dtype=np.int32)
        assert sorted(assign_parts(problem, unit_graph(problem), every, every)) == [*range(5)]


def test_slowness_is_relative_to_the_mean_link():
    bandwidth = {(0, 1): 1e9, (1, 0): 1e9, (0, 2): 5e8, (2, 0): 5e8, (1, 2): 5e8, (2, 1): 5e8}
    slow = link_slowness(make_problem(make_graph({"a": 1}), make_topology(3, bandwidth=bandwidth, latency=0.0)))
    np.testing.assert_allclose(slow, [[0, 0.6, 1.2], [0.6, 0, 1.2], [1.2, 1.2, 0]])


def test_large_variables_are_moved_to_where_they_are_used():
    """Three variables of 40 on a device of 100: one moves to the device whose op reads it."""
    graph = make_graph({"u": 4, "v": 4, "w": 4, "x": 4}, ["v -> x"], variables={"u": 40, "v": 40, "w": 40})
    problem = make_problem(graph, make_topology(3, memory=100))
    moved = fit_variables(problem, unit_graph(problem), np.array([0, 0, 0, 2], np.int32))
    assert moved.tolist() == [1, 0, 0, 2] or moved.tolist() == [0, 2, 0, 2]
    assert np.bincount(moved, variable_bytes(problem), 3).max() <= 100


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), fraction=st.sampled_from([1.0, 0.5]))
def test_moves_for_memory_are_allowed_and_leave_less_over(seed, fraction):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 30, tight=True)
    before = random_devices(rng, problem)
    after = fit_variables(problem, unit_graph(problem), before, fraction)
    problem.expand(after)
    size, limit = variable_bytes(problem), fraction * problem.memory_limit
    over = [np.maximum(np.bincount(d, size, problem.num_devices) - limit, 0) for d in (before, after)]
    assert np.all(over[1] <= over[0])
    np.testing.assert_array_equal(before[size == 0], after[size == 0])


def test_memory_changes_the_balance():
    """All variables are in the first half of a chain; by work alone one device of two would hold them all."""
    names = [f"op{i}" for i in range(40)]
    graph = make_graph(
        dict.fromkeys(names, 4),
        [f"op{i} -> op{i + 1}" for i in range(39)],
        variables=dict.fromkeys(names[:20], 100),
    )
    problem = make_problem(graph, make_topology(2, memory=1200))
    assert Simulator(problem).key(run_placer(Metis(), problem))[0] == 0


def test_contents_of_devices_change_places_if_that_is_quicker():
    """The host's text is read by the part that the fast link leads to."""
    bandwidth = {(0, 1): 1e9, (1, 0): 1e9, (0, 2): 1e3, (2, 0): 1e3, (1, 2): 1e8, (2, 1): 1e8}
    topology = make_topology(3, types=["CPU", "GPU", "GPU"], bandwidth=bandwidth, latency=0.0)
    problem = cliques(2, topology=topology)
    assert Simulator(problem).key(run_placer(Metis(), problem))[1] < 60


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_more_devices_than_ops(devices):
    problem = make_problem(make_graph({"a": 4, "b": 4}, ["a -> b"]), make_topology(devices))
    problem.expand(run_placer(Metis(), problem))
