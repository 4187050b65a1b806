"""The kernels against the slow oracle, and what every plan must keep."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.oracle import Oracle, upward_ranks
from tfplace.schedule.list_scheduling.ranks import ready_first
from tfplace.schedule.list_scheduling.scheduler import Favourites, Scheduler
from tfplace.testing import make_graph, make_problem, make_topology, random_problem
from tfplace.testing.strategies import problems

MANY = settings(max_examples=60, deadline=None)


def random_favourites(problem, seed):
    """Children drawn at random: each of one parent at most."""
    rng = np.random.default_rng(seed)
    count = problem.graph.num_ops
    child = np.full(count, -1, np.int32)
    free = set(np.flatnonzero(~problem.graph.replicable).tolist())
    for src, dst in zip(problem.graph.edge_src.tolist(), problem.graph.edge_dst.tolist(), strict=True):
        if src < dst and dst in free and child[src] < 0 and not problem.graph.replicable[src] and rng.random() < 0.8:
            child[src] = dst
            free.remove(dst)
    return Favourites(child, rng.choice([0.0, 0.5, 3.0], count))


def agree(plan, oracle):
    planned = sorted(oracle.finish)
    assert plan.start_s[planned].tolist() == pytest.approx([oracle.start[v] for v in planned], rel=1e-12)
    assert plan.finish_s[planned].tolist() == pytest.approx([oracle.finish[v] for v in planned], rel=1e-12)
    for unit, device in oracle.unit_device.items():
        assert plan.unit_device[unit] == device
    assert plan.forced == oracle.forced


@MANY
@given(problems(max_ops=12), st.booleans(), st.booleans())
def test_by_order_is_the_oracle(problem, serial, whole):
    scheduler = Scheduler.of(problem)
    plan = scheduler.by_order(serial=serial, whole=whole)
    agree(plan, Oracle(problem, serial=serial, whole=whole).by_order(scheduler.order.tolist()))


@MANY
@given(problems(max_ops=12), st.booleans())
def test_by_start_is_the_oracle(problem, serial):
    scheduler = Scheduler.of(problem)
    plan = scheduler.by_start(serial=serial)
    agree(plan, Oracle(problem, serial=serial).by_start(scheduler.order.tolist()))


@MANY
@given(problems(max_ops=12), st.integers(0, 100))
def test_with_favourites_it_is_the_oracle(problem, seed):
    scheduler = Scheduler.of(problem)
    favourites = random_favourites(problem, seed)
    plan = scheduler.by_start(serial=True, favourites=favourites)
    agree(plan, Oracle(problem, serial=True, favourites=favourites).by_start(scheduler.order.tolist()))


@pytest.mark.parametrize("seed", range(30))
def test_larger_random_problems_agree_with_the_oracle(seed):
    """With units of several ops, and memory from plenty to next to nothing."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, int(rng.integers(20, 40)), 2 + seed % 3, tight=True, ties=seed % 4 < 2)
    scheduler = Scheduler.of(problem)
    order = scheduler.order.tolist()
    serial, memory = bool(seed % 2), (1.0, 0.4, 0.2, 0.1, 0.05)[seed % 5]
    for whole in (False, True):
        oracle = Oracle(problem, serial=serial, whole=whole, memory=memory)
        agree(scheduler.by_order(serial=serial, whole=whole, memory=memory), oracle.by_order(order))
    for favourites in (None, random_favourites(problem, seed)):
        oracle = Oracle(problem, serial=serial, memory=memory, favourites=favourites)
        plan = scheduler.by_start(serial=serial, memory=memory, favourites=favourites)
        agree(plan, oracle.by_start(order))


@pytest.mark.parametrize("seed", range(10))
def test_upward_ranks_are_those_of_the_recursion(seed):
    problem = random_problem(np.random.default_rng(seed), 30)
    scheduler = Scheduler.of(problem)
    for v, rank in upward_ranks(Oracle(problem)).items():
        assert scheduler.rank[v] == pytest.approx(rank)


def plans(problem):
    scheduler = Scheduler.of(problem)
    yield scheduler.by_order(), False
    yield scheduler.by_order(serial=True, whole=True), True
    yield scheduler.by_start(), False
    yield scheduler.by_start(serial=True), True
    yield scheduler.by_start(serial=True, favourites=random_favourites(problem, 0)), True


@pytest.mark.parametrize("seed", range(8))
def test_plans_keep_precedence_and_run_one_op_at_a_time(seed):
    problem = random_problem(np.random.default_rng(seed), 50, 3)
    oracle = Oracle(problem)
    for plan, _ in plans(problem):
        device = problem.spread(plan.unit_device)
        for message, readers in oracle.readers.items():
            for w in readers:
                a, b = device[message[0]], device[w]
                seconds = oracle.transfer_seconds(message, a, b) if a != b else 0.0
                assert plan.start_s[w] >= plan.finish_s[message[0]] + seconds - 1e-9
        for d in range(problem.num_devices):
            mine = np.flatnonzero((device == d) & ~problem.graph.replicable & (plan.finish_s > plan.start_s))
            mine = mine[np.argsort(plan.start_s[mine])]
            assert np.all(plan.finish_s[mine[:-1]] <= plan.start_s[mine[1:]] + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_serial_channels_carry_one_transfer_at_a_time(seed):
    problem = random_problem(np.random.default_rng(seed), 50, 3, ties=False)
    scheduler = Scheduler.of(problem)
    messages, ops = scheduler.tasks.messages, scheduler.tasks.ops
    for plan, serial in plans(problem):
        if not serial:
            continue
        device = problem.spread(plan.unit_device)
        taken = {}
        for m, d in zip(*np.nonzero(np.isfinite(plan.sent_s)), strict=True):
            maker = messages["maker"][m]
            a = device[maker]
            if a == d:
                continue
            seconds = ops["trips"][maker] * scheduler.tasks.fixed_s[a, d]
            seconds += messages["volume"][m] * scheduler.tasks.byte_s[a, d]
            for c in problem.topology.channels[a, d]:
                if c >= 0 and seconds > 0:
                    taken.setdefault(int(c), []).append((plan.sent_s[m, d] - seconds, plan.sent_s[m, d]))
        for stretches in taken.values():
            stretches.sort()
            assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(stretches))


@MANY
@given(problems(max_ops=12), st.sampled_from((0.5, 1.0)))
def test_memory_lasts_unless_the_plan_says_so(problem, memory):
    """Promised for units of one op: only the first op of a unit is asked whether it fits."""
    if max(map(len, problem.grouping.members), default=0) > 1:
        return
    scheduler = Scheduler.of(problem)
    for plan in (scheduler.by_order(memory=memory), scheduler.by_start(serial=True, memory=memory)):
        assert plan.forced or (plan.lowest >= 0).all()


def test_gaps_are_filled():
    """a | gap | c on one device: b, planned last, goes into the gap that waiting for x left."""
    graph = make_graph({"a": 0, "x": 0, "c": 0, "b": 0}, ["a -> c", "x -> c"])
    problem = make_problem(
        graph, make_topology(2, bandwidth=1.0, latency=1.0), np.array([[2.0, 9], [9, 4], [3, 9], [3, 9]])
    )
    plan = Scheduler.of(problem).by_order()
    assert plan.unit_device.tolist() == [0, 1, 0, 0]
    assert plan.start_s.tolist() == [0, 0, 5, 2]


def test_a_tensor_is_sent_once_and_transfers_wait_for_one_another():
    """x feeds y and z on the other device, as does w with y: three readings, two transfers of 10 s each, in turn."""
    graph = make_graph({"x": 10, "w": 10, "y": 0, "z": 0}, ["x -> y", "w -> y", "x -> z"])
    problem = make_problem(
        graph,
        make_topology(2, bandwidth=1.0, latency=0.0),
        [1.0, 1.0, 1.0, 1.0],
        allowed=np.array([[1, 0], [1, 0], [0, 1], [0, 1]], bool),
    )
    plan = Scheduler.of(problem).by_start(serial=True)
    assert plan.start_s.tolist() == [0, 1, 21, 11]
    alone = Scheduler.of(problem).by_start()
    assert alone.start_s.tolist() == [0, 1, 12, 11]


def test_the_first_op_decides_alone_or_with_its_unit():
    """p and q are two units of two ops, r a long chain's end: with `whole`, q sees what p still has to run."""
    graph = make_graph(
        {"p0": 0, "q0": 0, "p1": 0, "q1": 0},
        ["p0 -> p1", "q0 -> q1"],
        resource={"p0": 0, "p1": 0, "q0": 1, "q1": 1},
    )
    problem = make_problem(graph, make_topology(2, latency=2.0), [0.0, 0.0, 5.0, 5.0])
    assert Scheduler.of(problem).by_order().unit_device.tolist() == [0, 0]
    assert Scheduler.of(problem).by_order(whole=True).unit_device.tolist() == [0, 1]


def test_slower_links_keep_ops_together():
    graph = make_graph({"a": 1, "b": 10, "c": 10, "d": 0}, ["a -> b", "a -> c", "b -> d", "c -> d"])
    problem = make_problem(graph, make_topology(2, bandwidth=10.0, latency=0.0), 2.0)
    scheduler = Scheduler.of(problem)
    assert len({*scheduler.by_order().unit_device.tolist()}) == 2
    assert len({*scheduler.slower(100.0).by_order().unit_device.tolist()}) == 1


def test_ready_first_takes_the_highest_of_those_ready():
    graph = make_graph(dict.fromkeys("abcd", 0), ["a -> c", "b -> d"])
    scheduler = Scheduler.of(make_problem(graph, make_topology(2)))
    order = ready_first(scheduler.tasks, scheduler.units.of_op, np.array([1.0, 2.0, 9.0, 3.0]))
    assert order.tolist() == [1, 3, 0, 2]


def test_an_op_that_was_turned_away_follows_its_unit_there():
    """q, which goes first, finds no room for its output on device 0; p, of the same unit, does, and takes q along."""
    graph = make_graph({"x": 10, "q": 100, "p": 0, "r": 0}, ["x -> q", "x -> p", "q -> r"], resource={"q": 0, "p": 0})
    topology = make_topology(2, bandwidth=1.0, latency=0.0, memory=[50, 1000])
    problem = make_problem(graph, topology, 1.0, allowed=np.array([[1, 0], [1, 1], [0, 1]], bool))
    plan = Scheduler.of(problem).by_start()
    assert plan.unit_device.tolist() == [0, 0, 1]
    assert plan.start_s.tolist() == [0, 2, 1, 103]


def test_a_device_does_not_wait_for_a_child_whose_unit_went_elsewhere():
    graph = make_graph(
        {"a": 9, "x": 5, "other": 0, "child": 0},
        ["x -> other", "a -> child", "^other -> child"],
        resource={"other": 0, "child": 0},
    )
    problem = make_problem(
        graph,
        make_topology(2, bandwidth=1.0, latency=0.0),
        [1.0, 2.0, 1.0, 1.0],
        allowed=np.array([[1, 0], [0, 1], [1, 1]], bool),
    )
    favourites = Favourites(np.array([3, -1, -1, -1], np.int32), np.array([100.0, 0, 0, 0]))
    plan = Scheduler.of(problem).by_start(serial=True, favourites=favourites)
    assert plan.unit_device.tolist() == [0, 1, 1]
    assert plan.start_s.tolist() == [0, 0, 2, 10]
