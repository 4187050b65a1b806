"""Heads of ops from what must happen together."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.core.by_address import ByAddress
from tfplace.core.constraints import Constraints
from tfplace.core.kernels import passing_kernel
from tfplace.group.problem import formulate
from tfplace.simulation.bounds import lower_bound
from tfplace.simulation.joint import Incoming, Sending, _heads, heads, make_work, one_machine, twins
from tfplace.simulation.options import DEFAULT
from tfplace.simulation.paths import _incoming, _sending, after_s, allowed_seconds, before_s
from tfplace.testing import make_graph, make_problem, make_topology


def two_branches(transfer_s, devices=2):
    """Two ops of 10 s whose results, which take `transfer_s` to send, are read by a third."""
    graph = make_graph({"a": 100, "b": 100, "c": 0}, ["a -> c", "b -> c"])
    topology = make_topology(devices, bandwidth=100 / transfer_s, latency=0.0)
    return make_problem(graph, topology, np.tile([[10.0], [10.0], [1.0]], (1, devices)))


@pytest.mark.parametrize(("transfer_s", "head"), [(4.0, 14.0), (9.0, 19.0), (15.0, 20.0)])
@pytest.mark.parametrize("devices", [2, 3])
def test_branches_pay_for_a_transfer_or_wait_for_one_another(transfer_s, head, devices):
    problem = two_branches(transfer_s, devices)
    np.testing.assert_allclose(before_s(problem, allowed_seconds(problem), DEFAULT)[2], head)
    assert lower_bound(problem).seconds == pytest.approx(head + 1.0)


def test_from_the_end_it_is_the_same():
    graph = make_graph({"a": 100, "b": 0, "c": 0}, ["a -> b", "a -> c"])
    problem = make_problem(
        graph, make_topology(2, bandwidth=25.0, latency=0.0), [[1.0, 1.0], [10.0, 10.0], [10.0, 10.0]]
    )
    np.testing.assert_allclose(after_s(problem, allowed_seconds(problem), DEFAULT)[0], 14.0)


def test_a_chain_before_a_branch_counts_with_it():
    """On the reader's device stand x and a; b, or both, elsewhere would pay for 8 s of transfer."""
    graph = make_graph({"x": 1, "a": 80, "b": 80, "c": 0}, ["x -> a", "x -> b", "a -> c", "b -> c"])
    problem = make_problem(
        graph, make_topology(2, bandwidth=10.0, latency=0.0), np.tile([[2.0], [3.0], [4.0], [1.0]], (1, 2))
    )
    np.testing.assert_allclose(before_s(problem, allowed_seconds(problem), DEFAULT)[3], 9.0)


def test_unlike_devices():
    """b takes 3 s on the other device, which reading it from there makes 7."""
    graph = make_graph({"a": 40, "b": 40, "c": 0}, ["a -> c", "b -> c"])
    topology = make_topology(2, bandwidth=10.0, latency=0.0)
    problem = make_problem(graph, topology, [[5.0, 9.0], [5.0, 3.0], [1.0, 1.0]])
    np.testing.assert_allclose(before_s(problem, allowed_seconds(problem), DEFAULT)[2], [7.0, 9.0])


TIMES = st.integers(0, 6).map(float)


@passing_kernel
def one_machine_s(work, count):
    return one_machine(work, count, count)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TIMES, TIMES, TIMES), min_size=1, max_size=6))
def test_one_machine_is_the_largest_over_subsets(tasks):
    """Carlier 1982: the preemptive optimum is the largest of least head, sum of work, least tail over all subsets."""
    head, work, tail = (np.array(column) for column in zip(*tasks, strict=True))
    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(len(tasks)), n) for n in range(1, len(tasks) + 1)
    )
    expected = max(head[list(s)].min() + work[list(s)].sum() + tail[list(s)].min() for s in subsets)
    shared = make_work(Incoming(*[np.zeros(1, np.int64)] * 5), np.zeros((1, 1)), Sending(*np.zeros((2, 1, 1))))
    shared.found[1:, : len(tasks)] = head, work, tail
    shared.by_head[: len(tasks)] = np.argsort(head)
    assert one_machine_s(ByAddress(shared), len(tasks)) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_naming_devices_anew_changes_nothing(seed):
    """Devices that are alike are computed once; with a hair's difference in speed, one by one."""
    from tfplace.core.costs import CostTable
    from tfplace.testing import random_graph

    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 40)
    topology = make_topology(3, bandwidth=50.0, latency=0.1, types=["CPU"] * 3)
    alone = rng.uniform(0, 3, (graph.num_ops, 1))
    alike, nearly = (
        formulate(graph, topology, CostTable(alone * factors, ("test",) * graph.num_ops), Constraints())
        for factors in (np.ones(3), np.array([1.0, 1 + 1e-12, 1 + 2e-12]))
    )
    for times in (before_s, after_s):
        one, other = (times(p, allowed_seconds(p), DEFAULT) for p in (alike, nearly))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_two_of_each_kind_of_device_tell_of_all(seed):
    """To the last bit, as if every device were computed with."""
    from tfplace.core.costs import CostTable
    from tfplace.testing import random_graph

    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 40)
    topology = make_topology(6, bandwidth=50.0, latency=0.1, types=["CPU"] * 6)
    seconds = rng.uniform(0, 3, (graph.num_ops, 1)) * [1.0, 1.5, 1.0, 1.0, 1.5, 2.0]
    problem = formulate(graph, topology, CostTable(seconds, ("test",) * graph.num_ops), Constraints())
    seconds, incoming, sending = allowed_seconds(problem), _incoming(problem), _sending(problem, DEFAULT)
    twin = twins(seconds, sending)
    assert twin.tolist() == [0, 1, 0, 0, 1, 5]
    work = make_work(incoming, seconds, sending)
    _heads(ByAddress(work), twin)
    np.testing.assert_array_equal(heads(incoming, seconds, sending), work.h)
