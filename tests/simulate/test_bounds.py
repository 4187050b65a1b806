import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from tfplace.simulate.bounds import lower_bound, work_s
from tfplace.simulate.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_problem
from tfplace.testing.strategies import problems


def best_step(problem):
    sim = Simulator(problem)
    choices = [np.flatnonzero(row).tolist() for row in problem.allowed]
    return min(sim.key(np.array(devices, np.int32))[1] for devices in itertools.product(*choices))


@settings(max_examples=200, deadline=None)
@given(problems(max_ops=6, max_devices=3))
def test_no_placement_beats_the_bound(problem):
    bound = lower_bound(problem)
    assert best_step(problem) >= bound.seconds
    assert bound.seconds == pytest.approx(bound.all[bound.kind])
    assert bound.all[bound.kind] == max(bound.all.values())


def test_no_random_placement_of_larger_graphs_beats_the_bound():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, 200, 4, ties=bool(seed % 2))
        sim, bound = Simulator(problem), lower_bound(problem)
        for _ in range(20):
            assert sim.key(random_devices(rng, problem))[1] >= bound.seconds


def bound_of(graph, seconds, num_devices=2, **kwargs):
    return lower_bound(make_problem(graph, make_topology(num_devices), seconds, **kwargs))


def test_a_chain_is_bound_by_its_critical_path():
    chain = make_graph({"a": 1, "b": 1, "c": 1}, ["a -> b", "b -> c"])
    bound = bound_of(chain, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert (bound.kind, bound.seconds) == ("critical path", pytest.approx(6.0))
    assert bound.all["work"] == pytest.approx(3.0)
    assert bound.all["largest unit"] == 3.0


def test_independent_ops_are_bound_by_work():
    bound = bound_of(make_graph({"a": 1, "b": 1, "c": 1, "d": 1}), 1.0)
    assert (bound.kind, bound.seconds) == ("work", pytest.approx(2.0))


def test_ops_of_one_resource_are_bound_as_the_largest_unit():
    graph = make_graph({"a": 1, "b": 1, "c": 1}, resource={"a": 0, "b": 0})
    bound = bound_of(graph, {"a": 2.0, "b": 2.0, "c": 1.0})
    assert (bound.kind, bound.seconds) == ("largest unit", pytest.approx(4.0))


def test_the_critical_path_takes_each_ops_fastest_allowed_device():
    chain = make_graph({"a": 1, "b": 1}, ["a -> b"])
    seconds = np.array([[1.0, 5.0], [5.0, 1.0]])
    assert bound_of(chain, seconds).all["critical path"] == pytest.approx(2.0)
    pinned = bound_of(chain, seconds, allowed=np.array([[False, True], [True, True]]))
    assert pinned.all["critical path"] == pytest.approx(6.0)


def test_replicable_constants_and_back_edges_do_not_count():
    graph = make_graph({"k": 1, "a": 1, "b": 1}, ["k -> a", "a -> b", "b => a"], replicable=["k"])
    assert bound_of(graph, 1.0).all["critical path"] == pytest.approx(2.0)


def test_work_knows_that_a_slow_device_is_no_whole_device():
    unit_s = np.tile([1.0, 9.0], (100, 1))  # a tenth of the work belongs on the slow device
    assert work_s(unit_s) == pytest.approx(90.0, rel=0.02)


def test_work_knows_where_units_may_go():
    unit_s = np.array([[1.0, np.inf]] * 10 + [[1.0, 1.0]] * 2)
    assert work_s(unit_s) == pytest.approx(10.0, rel=0.02)
