"""Groups as tasks: by hand, and what holds for any groups."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.group.merge import renumber
from tfplace.schedule.list_scheduling.fuse import fuse
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def test_two_groups_of_a_diamond():
    graph = make_graph(
        {"a": 8, "b": (3, 5), "c": 7, "d": 0},
        ["a -> b", "a -> c", "b:0 -> d", "b:1 -> d", "c -> d"],
        variables={"c": 60},
    )
    problem = make_problem(graph, make_topology(2), [1.0, 2.0, 4.0, 8.0])
    scheduler = fuse(problem, np.array([0, 0, 1, 1], np.int32))
    t = scheduler.tasks
    assert t.seconds.tolist() == [[3, 3], [12, 12]]
    assert scheduler.units.persistent.tolist() == [0, 60]
    assert t.messages["size"][:-1].tolist() == [8, 3, 5]
    assert t.messages["maker"][:-1].tolist() == [0, 0, 0]
    assert t.reader.tolist() == [1, 1, 1]


def test_trips_count_in_what_is_moved():
    graph = make_graph({"a": 8, "b": 0}, ["a -> b"], trips={"a": 3.0})
    scheduler = fuse(make_problem(graph, make_topology(2)), np.array([0, 1], np.int32))
    assert scheduler.tasks.messages["volume"][0] == 24
    assert scheduler.tasks.ops["trips"][0] == 3


def test_what_comes_back_to_an_earlier_group_does_not_count():
    """Read, use and update of a variable: the update, in the first unit, waits for nothing."""
    graph = make_graph(
        {"read": 4, "use": 4, "update": ()}, ["read -> use", "use -> update"], resource={"read": 0, "update": 0}
    )
    scheduler = fuse(make_problem(graph, make_topology(2)))
    assert scheduler.tasks.messages["maker"][:-1].tolist() == [0]
    assert scheduler.tasks.reader.tolist() == [1]


@pytest.mark.parametrize("seed", range(12))
def test_any_groups_make_a_list_that_can_be_scheduled(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 40, 3)
    label = renumber(rng.integers(0, 8, problem.num_units).astype(np.int32))
    scheduler = fuse(problem, label)
    t = scheduler.tasks
    makers = t.messages["maker"][:-1]
    readers = np.diff(t.messages["reader_first"])
    assert np.all(np.repeat(makers, readers) < t.reader)
    inside = ~problem.graph.replicable
    assert t.seconds.sum(axis=0) == pytest.approx(problem.costs.compute_s[inside].sum(axis=0))
    wide = scheduler.units.tier.min(axis=1) < 2
    if wide.all():
        for plan in (scheduler.by_order(), scheduler.by_start(serial=True)):
            assert all(len({*plan.unit_device[label == g].tolist()}) == 1 for g in range(label.max() + 1))


def test_single_units_without_cycles_are_the_problem_itself():
    graph = make_graph({"a": 8, "b": 8, "c": 0}, ["a -> b", "b -> c", "a -> c"])
    problem = make_problem(graph, make_topology(2), [1.0, 2.0, 3.0])
    fused = fuse(problem)
    assert fused.by_start().length_s == 6.0
    assert fused.rank.tolist() == pytest.approx([6 + 2 * (10e-6 + 8e-10), 5 + 10e-6 + 8e-10, 3], rel=1e-9)
