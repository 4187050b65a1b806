"""Moves say what they change, keep to what is allowed, and take things off the critical path."""

import collections
import itertools
from unittest import mock

import numpy as np
import pytest

from tests.group.test_unit_sets import unrolled
from tests.local_search.plain_moves import PlainMoves
from tfplace.core.by_address import ByAddress
from tfplace.core.evaluator import Evaluator
from tfplace.core.kernels import passing_kernel
from tfplace.group.unit_sets import UnitSets
from tfplace.local_search.move_features_kernel import Feature
from tfplace.local_search.move_kernel import ACROSS, BORDER, CRITICAL, SWAP, _of_set, one
from tfplace.local_search.moves import Moves, drawn
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def moves_of(problem, seed=0, **settings):
    return Moves(Search(problem, Budget(evaluations=10_000), seed, **settings).context("x"))


def plain_moves_of(problem):
    return PlainMoves(Search(problem, Budget(evaluations=10_000), 0).context("x"))


@passing_kernel
def draw_one(of, path, now, rng, done, kind):  # noqa: PLR0917
    one(of, path, now, rng, done, kind, 0)


@passing_kernel
def draw_of_set(of, now, rng, unit, device):
    _of_set(of, now, rng, 0, unit, device)


def of_kind(moves, kind, devices):
    now = moves.at(devices, 1)
    draw_one(ByAddress(moves.parts), ByAddress(moves.path), ByAddress(now), moves.context.rng, moves.done, kind)
    return drawn(now, 0)


def of_set(moves, devices, unit, device):
    now = moves.at(devices, 1)
    now.size[0] = 0
    draw_of_set(ByAddress(moves.parts), ByAddress(now), moves.context.rng, unit, device)
    return drawn(now, 0)


def test_borders_are_crossed():
    """Each kind on a chain of two halves: clusters and regions are connected, and what is across a border goes over."""
    names = [f"x{i:02}" for i in range(40)]
    graph = make_graph(dict.fromkeys(names, 4), [f"{a} -> {b}" for a, b in itertools.pairwise(names)])
    moves = moves_of(make_problem(graph, make_topology(2)), 3)
    devices = np.repeat(np.arange(2, dtype=np.int32), 20)
    seen = collections.Counter()
    for kind in (BORDER, ACROSS):
        for _ in range(200):
            move = of_kind(moves, kind, devices)
            assert {19, 20} & {*move.units.tolist()}, "at the border"
            assert move.units.max() - move.units.min() == len(move.units) - 1, "in one piece"
            seen[int(move.devices[0])] += 1
            if kind == BORDER:
                assert np.all(devices[move.units] != move.devices), "only one side"
    assert min(seen[0], seen[1]) > 100
    swap = next(move for _ in range(100) if len((move := of_kind(moves, SWAP, devices)).units))
    assert {*devices[swap.units].tolist()} == {*swap.devices.tolist()} == {0, 1}


def test_no_move_leaves_what_is_allowed():
    graph = make_graph(dict.fromkeys("abcdef", 4), ["a -> b", "b -> c", "c -> d", "d -> e"], cpu_only=["b"])
    topology = make_topology(3, types=["CPU", "GPU", "GPU"])
    problem = make_problem(graph, topology)
    moves = moves_of(problem)
    devices = np.array([1, 0, 1, 2, 2, 1], np.int32)
    found = [move for _ in range(125) for move in moves.draw(devices, 4)]
    assert len(found) == 500
    assert all(problem.allowed[m.units, m.devices].all() for m in found)
    assert all(np.any(devices[m.units] != m.devices) for m in found)


def test_a_scope_goes_without_what_may_not():
    graph = make_graph(
        {f"{scope}/{op}": 4 for scope in ("net/a", "net/b") for op in ("u", "v", "w")},
        [f"net/{s}/{x} -> net/{s}/{y}" for s in "ab" for x, y in ("uv", "vw")],
        cpu_only=["net/a/v"],
    )
    problem = make_problem(graph, make_topology(3, types=["CPU", "GPU", "GPU"]))
    moves = moves_of(problem)
    unit = int(problem.grouping.unit_of[graph.index["net/a/w"]])
    sizes = {len(of_set(moves, np.zeros(6, np.int32), unit, 1).units) for _ in range(100)}
    assert sizes == {1, 2}


def test_scopes_go_whole_or_in_stretches():
    problem = make_problem(unrolled(), make_topology(2))
    moves, devices, sets = moves_of(problem), np.zeros(problem.num_units, np.int32), UnitSets(problem)
    devices[::2] = 1
    seen = collections.Counter()
    for _ in range(500):
        move = of_set(moves, devices, 5, 1)
        around = [level[label[5]] for level, label in zip(sets.sets, sets.labels, strict=True)]
        inside = {len(units) for units in around if {*move.units} <= {*units}}
        assert inside
        seen[len(move.units) in inside] += 1
    assert min(seen.values()) > 50


def test_the_critical_path_is_taken_apart():
    """Of two chains the long one is all that is moved, or what is around it."""
    long, short = [f"x{i:02}" for i in range(30)], [f"y{i}" for i in range(5)]
    pairs = [*itertools.pairwise(long), *itertools.pairwise(short)]
    graph = make_graph(dict.fromkeys(long + short, 4), [f"{a} -> {b}" for a, b in pairs])
    problem = make_problem(graph, make_topology(3), 1.0)
    moves = moves_of(problem)
    devices = np.repeat(np.array([0, 1], np.int32), [30, 5])
    moves.ask(devices)
    found = [move for _ in range(200) if len((move := of_kind(moves, CRITICAL, devices)).units)]
    assert len(found) > 50
    assert all(move.units.min() < 30 for move in found)


def test_a_path_is_asked_for_once_in_a_while():
    problem = make_problem(unrolled(), make_topology(2))
    moves, devices = moves_of(problem), np.zeros(problem.num_units, np.int32)
    plain = plain_moves_of(problem)
    draws = []
    with mock.patch.object(plain, "draw", side_effect=lambda at: draws.append(at) or PlainMoves.draw(plain, at)):
        for _ in range(500):
            plain.draw_all(devices, 1)
            moves.draw(devices)
        assert moves.context.evaluations == 1, "nothing has changed"
        draws.clear()
        for _ in range(500):
            same = devices.copy()
            plain.draw_all(same, 1)
            moves.draw(same)
    assert len(draws) >= 500
    assert 1 + len(draws) * 0.5 / 33 < moves.context.evaluations < 1 + len(draws) * 0.8 / 33


def test_without_a_path_there_are_other_moves():
    class Silent(Evaluator):
        """A simulator that does not tell what a step waits for."""

        source, objective = "measured", "step time"

        def __init__(self, problem):
            self.problem = problem

        def __call__(self, unit_device):
            raise AssertionError("nothing is evaluated")

    problem = make_problem(unrolled(), make_topology(2))
    moves, devices = moves_of(problem, evaluator=Silent(problem)), np.zeros(problem.num_units, np.int32)
    assert len(moves.draw(devices, 50)) == 50
    assert moves.context.evaluations == 0


@pytest.mark.parametrize("count", [1, 40])
def test_a_path_counts_as_an_evaluation(count):
    problem = make_problem(unrolled(), make_topology(2))
    search = Search(problem, Budget(evaluations=count), 0)
    context = search.context("x")
    path = context.critical_path(np.zeros(problem.num_units, np.int32))
    assert search.evaluations == 1
    assert search.best_key == context.best_key == Simulator(problem).key(np.zeros(problem.num_units, np.int32))
    assert path.seconds.sum() == pytest.approx(search.best_key[1])


class Last:
    """A choice of what was drawn last, which writes down what it was told."""

    def __init__(self, among):
        self.among, self.asked, self.gains = among, [], []

    def pick(self, move_features, count):
        self.asked.append(move_features.shape)
        return np.arange(len(move_features))[::-1][:count]

    def tell(self, gains):
        self.gains.append(gains)


def test_a_choice_says_which_moves_are_given():
    """Those that it names, of as many as it wants to see; the same are drawn without it."""
    problem = random_problem(np.random.default_rng(0), num_ops=40, num_devices=3)
    devices = problem.allowed.argmax(axis=1).astype(np.int32)
    choice = Last(5)
    chosen = Moves(Search(problem, Budget(evaluations=1000), 0).context("x"), choice)
    drawn_s = moves_of(problem)
    for count in (1, 8):
        every = drawn_s.draw(devices, 5 * count)
        given = chosen.draw(devices, count)
        assert len(given) == count
        for move, other in zip(given, every[::-1], strict=False):
            np.testing.assert_array_equal(move.units, other.units)
            np.testing.assert_array_equal(move.devices, other.devices)
    assert choice.asked == [(5, len(Feature)), (40, len(Feature))]
    chosen.tell(np.array([1.0, np.inf]), 2.0)
    assert [gains.tolist() for gains in choice.gains] == [[0.5, -np.inf]]


def test_without_a_schedule_the_first_moves_are_given():
    problem = random_problem(np.random.default_rng(0), num_ops=40, num_devices=3)
    devices = problem.allowed.argmax(axis=1).astype(np.int32)
    choice = Last(5)
    chosen = Moves(Search(problem, Budget(evaluations=1000), 0).context("x"), choice)
    with mock.patch.object(type(chosen.context), "critical_path", lambda self, devices: None):
        given = chosen.draw(devices, 8)
        plain = moves_of(problem).draw(devices, 40)[:8]
    assert len(given) == 8
    for move, other in zip(given, plain, strict=True):
        np.testing.assert_array_equal(move.units, other.units)
    chosen.tell(np.ones(8), 2.0)
    assert not choice.asked and not choice.gains
