"""The critical path by hand, and against the timeline of the same step."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from tests.simulation.varied import options, random_options, random_variation
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options
from tfplace.testing import make_graph, make_problem, make_topology, random_problem
from tfplace.testing.strategies import placed_problems


def path_of(graph, seconds, devices):
    """What the path says by names: "a" for an op, "a>b" for a transfer; links move 1 byte per second."""
    problem = make_problem(graph, make_topology(max(devices) + 1, bandwidth=1.0, latency=0.0), seconds)
    path, key = Simulator(problem).critical_path(np.array(devices, np.int32))
    assert sum(path.seconds) == key[1]
    names = [graph.op_names[members[0]] for members in problem.grouping.members]
    return [names[u] + (f">{names[r]}" if r >= 0 else "") for u, r in zip(path.unit, path.reader, strict=True)]


def test_ops_and_the_transfer_between_them():
    graph = make_graph({"a": 4, "b": 0, "c": 0}, ["a -> b"])
    assert path_of(graph, 1.0, [0, 1, 1]) == ["b", "a>b", "a"]
    assert path_of(graph, {"a": 1.0, "b": 1.0, "c": 9.0}, [0, 1, 0]) == ["c", "a"]


def test_an_op_waits_for_its_device():
    """b is ready after 1 s, when c has just begun."""
    graph = make_graph({"a": 0, "b": 0, "c": 0}, ["a -> b"])
    assert path_of(graph, {"a": 1.0, "b": 1.0, "c": 5.0}, [0, 1, 1]) == ["b", "c"]


def test_a_transfer_waits_for_its_channel():
    """What goes to y has to wait for what goes to x."""
    graph = make_graph({"a": 9, "b": 2, "x": 0, "y": 0}, ["a -> x", "b -> y"])
    assert path_of(graph, {"a": 1.0, "b": 2.0, "x": 0.5, "y": 1.0}, [0, 0, 1, 1]) == ["y", "b>y", "a>x", "a"]


def test_a_message_to_several_names_one_reader_there():
    graph = make_graph({"a": 4, "x": 0, "y": 0}, ["a -> x", "a -> y"])
    assert path_of(graph, 1.0, [0, 1, 1]) == ["y", "x", "a>x", "a"]


def check(problem, simulator, devices, *, whole):
    """Every part of the path is in the timeline, one right before the other if nothing else takes time."""
    path, key = simulator.critical_path(devices)
    assert key == simulator.key(devices)
    ops = problem.spread(devices)
    timeline, unit_of = simulator.timeline(ops), problem.grouping.unit_of[problem.follows]
    assert np.all(path.seconds > 0)
    end = key[1]
    for unit in range(problem.num_units):
        mine = (unit_of == unit) & ~timeline.replicated
        spans = [timeline.start_s[mine].min(initial=np.inf), timeline.finish_s[mine].max(initial=0.0)]
        assert [path.start[unit], path.finish[unit]] == [min(spans), spans[1]]
    assert unit_of[path.op].tolist() == path.unit.tolist()
    for op, reader, seconds in zip(path.op, path.reader, path.seconds, strict=True):
        if reader < 0 and whole:
            assert [timeline.start_s[op], timeline.finish_s[op]] == pytest.approx([end - seconds, end])
        elif whole:
            maker = problem.graph.op_names[op]
            sent = np.array([name == maker for name in timeline.moved]) & (timeline.moved_dst == devices[reader])
            assert np.any(sent & np.isclose(timeline.moved_finish_s, end))
        end -= seconds
    if whole:
        assert end == pytest.approx(0.0, abs=1e-9 * max(key[1], 1.0))
    else:
        assert end >= -1e-9 * max(key[1], 1.0)


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_the_path_is_the_step(placed):
    problem, devices = placed
    check(problem, Simulator(problem), devices, whole=True)


@settings(max_examples=60, deadline=None)
@given(placed_problems(), options())
def test_by_other_rules_it_is_a_part_of_the_step(placed, rules):
    problem, devices = placed
    check(problem, Simulator(problem, rules), devices, whole=False)


@pytest.mark.parametrize("seed", range(20))
def test_with_work_and_host_memory_it_ends(seed):
    rng = np.random.default_rng(seed)
    problem = random_variation(rng, random_problem(rng, num_ops=60, num_devices=3))
    rules = random_options(rng)
    devices = np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed], np.int32)
    path, key = Simulator(problem, rules).critical_path(devices)
    assert key == Simulator(problem, rules).key(devices)
    assert 0 < len(path.unit) == len(path.seconds)


def test_one_device_is_busy_all_the_time():
    names = [f"x{i:02}" for i in range(30)]
    graph = make_graph(dict.fromkeys(names, 4), [f"{a} -> {b}" for a, b in itertools.pairwise(names[::3])])
    problem = make_problem(graph, make_topology(1), 1.0)
    path, key = Simulator(problem, Options()).critical_path(np.zeros(30, np.int32))
    assert sorted(path.unit.tolist()) == [*range(30)]
    assert key == (0, 30.0)


def test_an_op_waits_for_the_work_of_sending_not_for_the_wire():
    """b's input is sent off by its maker's device for 1 s, which v has to wait for; then it is 10 s on the wire."""
    graph = make_graph({"a": 0, "f": 0, "b": 0, "v": 0}, ["a -> b", "f -> v"])
    topology = make_topology(3, bandwidth=1e12, latency=0.0)
    links = [
        dataclasses.replace(link, latency_s=10.0, send_overhead_s=1.0)
        if (link.src, link.dst) == ("GPU:0", "GPU:1")
        else link
        for link in topology.links
    ]
    problem = make_problem(
        graph, dataclasses.replace(topology, links=tuple(links)), {"a": 1.0, "f": 1.5, "b": 0.1, "v": 20.0}
    )
    path, key = Simulator(problem).critical_path(np.array([0, 2, 1, 0], np.int32))
    assert path.seconds.tolist() == [20.0, 1.0, 1.0]
    assert sum(path.seconds) == key[1] == 22.0
    assert path.reader.tolist() == [-1, 2, -1]
