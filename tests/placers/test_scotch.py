"""Static mapping with all devices, and with accelerators alone."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfplace.errors import InputError
from tfplace.group.mapping import static_mapping
from tfplace.group.unit_graph import unit_graph
from tfplace.placers.min_cut import MinCut
from tfplace.placers.scotch import Scotch
from tfplace.testing import make_graph, make_problem, make_topology, random_problem
from tfplace.testing.placers import run_placer


def mapped(problem, devices=None, tolerance=0.05):
    devices = range(problem.num_devices) if devices is None else devices
    return static_mapping(problem, unit_graph(problem), np.array(devices, np.int32), tolerance)


def chain(length, topology, seconds=1.0, **settings):
    names = [f"op{i}" for i in range(length)]
    edges = [f"op{i} -> op{i + 1}" for i in range(length - 1)]
    return make_problem(make_graph(dict.fromkeys(names, 1000), edges, **settings), topology, seconds)


def test_a_chain_is_cut_as_rarely_as_can_be_into_shares_by_speed():
    problem = chain(80, make_topology(3), np.tile([1.0, 1.0, 2.0], (80, 1)))
    placed = mapped(problem)
    np.testing.assert_allclose(np.bincount(placed), [32, 32, 16], atol=3)
    assert (np.diff(placed) != 0).sum() == 2


def test_the_host_is_a_target_with_its_speed_to_scotch_but_not_to_min_cut():
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    problem = chain(84, topology, np.tile([5.0, 1.0, 1.0], (84, 1)))
    on_host = [(run_placer(placer, problem, evaluations=1) == 0).sum() for placer in (Scotch(), MinCut())]
    assert 4 <= on_host[0] <= 12
    assert on_host[1] == 0


def test_units_with_one_device_are_fixed_and_draw_the_others():
    """The two ends of a chain are bound to devices; each takes the half next to it."""
    problem = chain(40, make_topology(2))
    allowed = problem.allowed.copy()
    allowed[0], allowed[39] = [False, True], [True, False]
    problem = make_problem(problem.graph, problem.topology, allowed=allowed)
    placed = mapped(problem)
    assert placed.tolist() == sorted(placed.tolist(), reverse=True)
    assert 17 <= (placed == 0).sum() <= 23


def test_units_that_cannot_be_on_the_target_are_left_to_the_placer():
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    problem = chain(20, topology, cpu_only=["op7"])
    assert np.flatnonzero(mapped(problem, [1, 2]) < 0).tolist() == [7]
    assert np.flatnonzero(run_placer(MinCut(), problem) == 0).tolist() == [7]


def test_what_exchanges_much_is_mapped_onto_near_devices():
    """Four cliques in two pairs; devices in pairs of near ones that lie otherwise than their numbers."""
    slow = {(a, b): 1e7 for a, b in itertools.permutations(range(4), 2) if {a, b} not in ({0, 2}, {1, 3})}
    fast = dict.fromkeys(((0, 2), (2, 0), (1, 3), (3, 1)), 1e9)
    names = [f"{c}{i}" for c in "abcd" for i in range(6)]
    inner = [f"{c}{i} -> {c}{j}" for c in "abcd" for i in range(6) for j in range(i + 1, 6)]
    pairs = [f"a{i}:1 -> b{i}" for i in range(6)] + [f"c{i}:1 -> d{i}" for i in range(6)]
    graph = make_graph(dict.fromkeys(names, (10**6, 10**5, 4)), [*inner, *pairs, "b5:2 -> c0"])
    problem = make_problem(graph, make_topology(4, bandwidth=slow | fast, latency=0.0))
    placed = mapped(problem).reshape(4, 6)
    assert all(len({*row}) == 1 for row in placed)
    homes = placed[:, 0].tolist()
    assert {frozenset(homes[:2]), frozenset(homes[2:])} == {frozenset((0, 2)), frozenset((1, 3))}


@settings(max_examples=30, deadline=None)
@example(seed=300, num_ops=3, devices=4)  # of which Scotch itself moves one that is fixed
@given(seed=st.integers(0, 10_000), num_ops=st.integers(1, 60), devices=st.integers(1, 5))
def test_mappings_are_allowed_where_units_have_one_device_and_always_the_same(seed, num_ops, devices):
    problem = random_problem(np.random.default_rng(seed), num_ops, devices)
    placed = mapped(problem)
    np.testing.assert_array_equal(placed, mapped(problem))
    forced = np.flatnonzero(problem.allowed.sum(axis=1) == 1)
    np.testing.assert_array_equal(placed[forced], problem.allowed[forced].argmax(axis=1))
    assert np.all((placed >= 0) & (placed < problem.num_devices))


def test_large_graphs_are_mapped_alike_however_many_cores_there_are():
    problem = random_problem(np.random.default_rng(0), 4000, 4, unit=1e-3)
    assert len({mapped(problem).tobytes() for _ in range(6)}) == 1


def test_scotch_keeps_quiet(capfd):
    for seed in range(6):
        run_placer(Scotch(), random_problem(np.random.default_rng(seed), 40, 4))
    said = capfd.readouterr()
    assert said.out == said.err == ""


@pytest.mark.parametrize("placer", [Scotch(), MinCut()])
def test_without_pyscotch_the_error_says_what_to_install(placer, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyscotch", None)
    with pytest.raises(InputError, match=r"pip install 'tfplace\[scotch\]'"):
        run_placer(placer, chain(5, make_topology(2)))
