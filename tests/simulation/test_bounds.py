import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from tests.simulation.varied import random_options, random_variation, varied_problems, with_overheads
from tfplace.core.constraints import Constraints
from tfplace.core.costs import CostTable
from tfplace.simulation.bounds import lower_bound, memory_split
from tfplace.simulation.evaluate import Simulator, simulate_devices
from tfplace.simulation.options import Options
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.simulation.program import compile_problem
from tfplace.simulation.relaxation import relax
from tfplace.simulation.room import devices_with_room, op_bytes, roomy
from tfplace.sources import formulate
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_graph, random_problem


def placements(problem):
    every = list(itertools.product(*[np.flatnonzero(row).tolist() for row in problem.allowed]))
    return np.array(every, np.int32).reshape(len(every), problem.num_units)


def check_bound(problem, options, units):
    """No placement is faster than any of the bounds; only those that fit know of the memory's."""
    bound = lower_bound(problem, options)
    over, step_s = Simulator(problem, options, threads=1).keys(units)
    for kind, seconds in bound.all.items():
        counted = step_s[over == 0] if kind == "memory" else step_s
        assert counted.min(initial=np.inf) >= seconds * (1 - 1e-9), kind
    assert bound.seconds == pytest.approx(bound.all[bound.kind])
    assert bound.all[bound.kind] == max(bound.all.values())
    return bound


@settings(max_examples=60, deadline=None)
@given(varied_problems(max_ops=6, max_devices=3))
def test_no_placement_beats_the_bound(varied):
    problem, _, options = varied
    check_bound(problem, options, placements(problem))


@pytest.mark.parametrize("block", range(4))
def test_no_random_placement_of_larger_graphs_beats_the_bound(block):
    for seed in range(10 * block, 10 * block + 10):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, int(rng.integers(20, 200)), 4, ties=bool(seed % 2), tight=bool(seed % 3))
        if seed % 4:
            problem = random_variation(rng, problem)
        units = np.array([random_devices(rng, problem) for _ in range(20)])
        check_bound(problem, random_options(rng), units)


def test_no_placement_that_fits_beats_what_memory_forces():
    forced = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 12, max_outputs=1, zero_bytes=0.9, variables=3, loops=0.0)
        problem = random_problem(rng, num_devices=3, graph=graph, ties=bool(seed % 2))
        limit = rng.integers(0, int(graph.persistent_bytes.sum()) + 1, 3)
        problem = dataclasses.replace(problem, memory_limit=limit)
        bounds = check_bound(problem, Options(), placements(problem)).all
        forced += bounds.get("memory", 0.0) > 1.1 * bounds["work"]
    assert forced > 2


def test_no_placement_that_fits_has_an_op_where_there_is_no_room_for_it():
    forced = narrowed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 7, loops=0.2, variables=1)
        problem = random_problem(rng, num_devices=3, graph=graph, ties=bool(seed % 2))
        if seed % 4:
            problem = random_variation(rng, problem)
        need = op_bytes(compile_problem(problem))
        limit = rng.integers(0, 2 * int(need.max()) + 2, problem.num_devices)
        problem = dataclasses.replace(problem, memory_limit=limit)
        room, every = devices_with_room(problem), placements(problem)
        options = random_options(rng)
        over = Simulator(problem, options, threads=1).keys(every)[0]
        inside = room[np.arange(problem.num_units), every].all(axis=1)
        assert inside[over == 0].all()
        narrowed += not inside.all()
        bounds = check_bound(problem, options, every).all
        forced += bounds.get("memory", 0.0) > 1.1 * max(s for kind, s in bounds.items() if kind != "memory")
    assert narrowed > 10
    assert forced > 0


def test_what_an_op_holds_is_what_it_reads_and_makes_and_views_count_once():
    graph = make_graph(
        {"a": 8, "view": 8, "b": 3, "c": 0}, ["a -> view", "a -> b", "view -> b"], types={"view": "Reshape"}
    )
    problem = make_problem(graph, make_topology(2), 1.0)
    assert op_bytes(compile_problem(problem)).tolist() == [8, 8, 8 + 3, 0]
    limited = dataclasses.replace(problem, memory_limit=np.array([100, 10]))
    assert devices_with_room(limited).tolist() == [[True, True], [True, True], [True, False], [True, True]]


def test_units_may_be_only_where_there_is_room_for_them():
    """b fits the first device alone. If there is room for c nowhere, nothing fits, and searches have all as it was."""
    graph = make_graph({"a": 8, "b": 30, "c": 15}, ["a -> b"])
    problem = make_problem(graph, make_topology(2, memory=[50, 20]), 1.0)
    narrow = roomy(problem)
    assert narrow.allowed.tolist() == [[True, True], [True, False], [True, True]]
    large = make_problem(make_graph({"a": 8, "b": 30, "c": 90}, ["a -> b"]), make_topology(2, memory=[50, 20]), 1.0)
    assert roomy(large) is None
    assert Simulator(large).fitting is large
    assert np.isinf(narrow.unit_seconds[1, 1])
    wide = dataclasses.replace(problem, memory_limit=np.array([90, 90]))
    assert roomy(wide) is wide


def bound_of(graph, seconds, num_devices=2, **kwargs):
    return lower_bound(make_problem(graph, make_topology(num_devices), seconds, **kwargs))


def test_a_chain_is_bound_by_its_critical_path():
    chain = make_graph({"a": 1, "b": 1, "c": 1}, ["a -> b", "b -> c"])
    bound = bound_of(chain, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert (bound.kind, bound.seconds) == ("critical path", pytest.approx(6.0))
    assert bound.all["work"] == pytest.approx(3.0)
    assert bound.all["largest unit"] == 6.0  # what comes before and after counts


def test_independent_ops_are_bound_by_work():
    bound = bound_of(make_graph({"a": 1, "b": 1, "c": 1, "d": 1}), 1.0)
    assert bound.seconds == pytest.approx(2.0)
    assert bound.all["work"] == pytest.approx(2.0)
    assert bound.all["critical path"] == 1.0


def test_ops_of_one_resource_are_bound_as_the_largest_unit():
    graph = make_graph({"a": 1, "b": 1, "c": 1}, resource={"a": 0, "b": 0})
    bound = bound_of(graph, {"a": 2.0, "b": 2.0, "c": 1.0})
    assert (bound.kind, bound.seconds) == ("largest unit", pytest.approx(4.0))


def test_the_critical_path_takes_each_ops_fastest_allowed_device():
    chain = make_graph({"a": 1, "b": 1}, ["a -> b"])
    seconds = np.array([[1.0, 5.0], [5.0, 1.0]])
    free = make_topology(2, latency=0.0)
    assert lower_bound(make_problem(chain, free, seconds)).all["critical path"] == pytest.approx(2.0)
    pinned = bound_of(chain, seconds, allowed=np.array([[False, True], [True, True]]))
    assert pinned.all["critical path"] == pytest.approx(6.0)


@pytest.mark.parametrize(("overheads", "sent"), [(True, 0.5 + 4.0 + 2.0 + 8.0 + 1.0 + 4.0), (False, 0.5 + 4.0)])
def test_the_critical_path_counts_transfers_that_cannot_be_avoided(overheads, sent):
    graph = make_graph({"a": 4, "b": 4, "c": 0}, ["a -> b", "b -> c"])
    topology = make_topology(2, bandwidth=1.0, latency=0.5)
    problem = with_overheads(make_problem(graph, topology, 1.0), dict.fromkeys([(0, 1), (1, 0)], (2.0, 2.0, 1.0, 1.0)))
    problem = dataclasses.replace(problem, allowed=np.array([[True, False], [True, True], [False, True]]))
    options = Options(overheads=overheads)
    bound = lower_bound(problem, options)
    assert bound.all["critical path"] == pytest.approx(3.0 + sent)
    assert Simulator(problem, options).keys([[0, 0, 1], [0, 1, 1]])[1].tolist() == pytest.approx([3.0 + sent] * 2)


def test_the_critical_path_chooses_between_a_slow_device_and_a_transfer():
    chain = make_graph({"a": 10, "b": 0}, ["a -> b"])
    slow = np.array([[1.0, 9.0], [5.0, 1.0]])
    for latency, expected in ((0.5, 2.5), (100.0, 6.0)):
        problem = make_problem(chain, make_topology(2, latency=latency, bandwidth=1e12), slow)
        assert lower_bound(problem).all["critical path"] == pytest.approx(expected)


def test_ops_of_one_unit_are_on_one_device():
    graph = make_graph({"a": 1, "b": 1}, ["a -> b"], resource={"a": 0, "b": 0})
    seconds = np.array([[1.0, 9.0], [9.0, 1.0]])
    assert bound_of(graph, seconds).all["critical path"] == pytest.approx(10.0)


def test_a_window_adds_what_comes_before_and_after_to_the_work():
    names = [f"wide{i}" for i in range(8)]
    edges = [f"^first -> {n}" for n in names] + [f"^{n} -> last" for n in names]
    graph = make_graph(dict.fromkeys(["first", *names, "last"], 0), edges)
    problem = make_problem(
        graph, make_topology(2, latency=0.0), {**dict.fromkeys(names, 1.0), "first": 3.0, "last": 2.0}
    )
    bound = lower_bound(problem)
    assert (bound.kind, bound.seconds) == ("window", pytest.approx(3.0 + 4.0 + 2.0, rel=1e-3))


def test_a_window_counts_ops_that_may_be_on_one_device_only():
    graph = make_graph({f"op{i}": 0 for i in range(6)})
    allowed = np.array([[True, False]] * 4 + [[True, True]] * 2)
    bound = bound_of(graph, 1.0, allowed=allowed)
    assert bound.all["window"] == pytest.approx(4.0)


def test_replicable_constants_and_back_edges_do_not_count():
    graph = make_graph({"k": 1, "a": 1, "b": 1}, ["k -> a", "a -> b", "b => a"], replicable=["k"])
    assert bound_of(graph, 1.0).all["critical path"] == pytest.approx(2.0)


def test_work_knows_that_a_slow_device_is_no_whole_device():
    unit_s = np.tile([1.0, 9.0], (100, 1))  # a tenth of the work belongs on the slow device
    assert relax(unit_s).seconds == pytest.approx(90.0, rel=1e-3)


def test_work_knows_where_units_may_go():
    unit_s = np.array([[1.0, np.inf]] * 10 + [[1.0, 1.0]] * 2)
    assert relax(unit_s).seconds == pytest.approx(10.0, rel=1e-3)


def test_memory_forces_work_onto_a_slow_device():
    graph = make_graph(dict.fromkeys(map(str, range(10)), 0), variables=dict.fromkeys(map(str, range(10)), 10))
    seconds = np.tile([1.0, 20.0], (10, 1))
    problem = make_problem(graph, make_topology(2), seconds, memory_limit=[70, 1000])
    assert lower_bound(problem).all["work"] == pytest.approx(10 * 20 / 21, rel=1e-3)
    split = memory_split(problem)
    assert split.seconds == pytest.approx(60.0, rel=0.02)  # three of the ten must go
    assert lower_bound(problem).kind == "memory"
    units = np.array([[0] * 7 + [1] * 3, [0] * 8 + [1] * 2], np.int32)
    over, step_s = Simulator(problem).keys(units)
    assert over.tolist() == [0, 10]
    assert step_s.tolist() == [60.0, 40.0]


@pytest.mark.parametrize("limit", [[100, 100], [40, 40]])
def test_memory_says_nothing_if_all_fits_anywhere_or_nothing_fits(limit):
    graph = make_graph({"a": 0, "b": 0}, variables={"a": 50, "b": 50})
    problem = make_problem(graph, make_topology(2), 1.0, memory_limit=limit)
    assert memory_split(problem) is None
    assert "memory" not in lower_bound(problem).all


def test_prices_and_weights_prove_the_value():
    rng = np.random.default_rng(0)
    for _ in range(15):
        unit_s = rng.lognormal(size=(30, 3)) * np.where(rng.random((30, 3)) < 0.2, np.inf, 1.0)
        unit_s[:, 0] = rng.lognormal(size=30)
        held, limit = rng.random(30), np.array([20.0, 3.0, 2.0])
        found = relax(unit_s, held, limit)
        assert found.weight.sum() == pytest.approx(1.0)
        assert (found.weight >= 0).all()
        assert (found.price >= 0).all()
        with np.errstate(invalid="ignore"):
            weighted = np.where(np.isinf(unit_s), np.inf, unit_s * found.weight) + held[:, None] * found.price
        assert found.seconds == pytest.approx(weighted.min(axis=1).sum() - found.price @ limit)


def test_a_graph_of_constants_has_a_bound_of_nothing():
    assert bound_of(make_graph({"k": 8}, replicable=["k"]), 1.0).seconds == 0.0


def test_a_constant_that_a_rule_names_is_bound_by_nothing():
    graph = make_graph({"k": 8, "a": 1, "b": 1}, ["k -> a", "a -> b"], replicable=["k"])
    for rules in ({"forbid": {"*": ["CPU:0"]}}, {"pin": {"k": "GPU:0"}}):
        problem = formulate(graph, "2xP100", constraints=Constraints(**rules))
        found = check_bound(problem, Options(), placements(problem))
        assert 0 < found.seconds < np.inf


@pytest.mark.parametrize("block", range(4))
def test_no_placement_that_keeps_to_rules_on_everything_beats_the_bound(block):
    for seed in range(10 * block, 10 * block + 10):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 40, cpu_only=0.0, constants=0.2)
        rules = Constraints(forbid={"*": ["CPU:0"]}, pin={str(rng.choice(graph.op_names)): "GPU:0"})
        problem = formulate(graph, "2xP100", constraints=rules)
        units = np.array([random_devices(rng, problem) for _ in range(20)])
        found = check_bound(problem, Options(), units)
        assert np.isfinite(found.seconds)


def test_a_copied_constant_that_a_rule_made_a_unit_of_does_not_count():
    """It does not run, whatever a cost table of the user's says of it."""
    graph = make_graph({"c": 1, "a": 1}, ["c -> a"], replicable=["c"])
    for rules in (Constraints(colocate=[["a", "c"]]), Constraints(pin={"c": "GPU:0"})):
        problem = formulate(
            graph, make_topology(2), constraints=rules, costs=CostTable(np.ones((2, 2)), ("given",) * 2)
        )
        bound = check_bound(problem, Options(), placements(problem))
        assert bound.seconds == pytest.approx(1.0)
        pipeline = PipelineLoads(problem)
        assert all(pipeline.key(devices) == (0, 1.0) for devices in placements(problem))
        assert simulate_devices(problem, {"a": "GPU:1" if rules.pin else "GPU:0"}).step_s == 1.0
