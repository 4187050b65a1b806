import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from tfplace.core.constraints import Constraints, match_ops
from tfplace.core.costs import CostTable
from tfplace.core.grouping import Grouping
from tfplace.core.timeline import Timeline
from tfplace.errors import ConstraintError, GraphError, InputError, PlacementError
from tfplace.simulation.evaluate import timeline_of
from tfplace.testing import make_graph, make_problem, make_topology
from tfplace.testing.strategies import placed_problems


@pytest.fixture
def problem():
    graph = make_graph(
        {"k": 1, "a": 1, "b": 1, "c": 1}, ["k -> b", "k -> c"], replicable=["k"], resource={"a": 0, "c": 0}
    )
    return make_problem(graph, make_topology(2), 1.0, allowed=np.array([[True, False], [True, True]]))


def test_constants_follow_their_first_reader(problem):
    assert problem.grouping.unit_of.tolist() == [-1, 0, 1, 0]
    assert problem.expand(np.array([0, 1])).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([0], r"one device for each of 2 units"),
        ([0, 2], "a device index out of range, 2 of unit 1"),
        ([0, -1], "a device index out of range, -1 of unit 1"),
        ([1, 0], "a on GPU:1; expected a device that has its kernel"),
    ],
)
def test_wrong_devices_are_refused(problem, devices, message):
    with pytest.raises(PlacementError, match=message):
        problem.expand(np.array(devices))


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_units_stay_together(placed):
    problem, unit_device = placed
    op_device = problem.expand(unit_device)
    assert problem.gather(op_device).tolist() == unit_device.tolist()
    for unit, members in enumerate(problem.grouping.members):
        assert len(members)
        assert (op_device[members] == unit_device[unit]).all()
    assert ((op_device >= 0) & (op_device < problem.num_devices)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allowed": np.ones((1, 2), bool)}, r"allowed of shape \(1, 2\); expected shape \(2, 2\)"),
        ({"memory_limit": np.ones(3, np.int64)}, "memory_limit of shape"),
        ({"follows": np.zeros(1, np.int32)}, "follows of shape"),
        ({"costs": CostTable(np.ones((4, 3)), ("",) * 4)}, r"costs of shape \(4, 3\)"),
        ({"grouping": Grouping(np.array([0, 1], np.int32), 2)}, "units of shape"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(problem, change, message):
    with pytest.raises(PlacementError, match=message):
        dataclasses.replace(problem, **change)


@pytest.mark.parametrize("units", [([0, 2], 2), ([0, 2], 3), ([0, 0], 2), ([1, 0], 2)])
def test_units_are_numbered_without_gaps_by_their_first_op(units):
    with pytest.raises(GraphError):
        Grouping(np.array(units[0], np.int32), units[1])


def test_members_of_units():
    grouping = Grouping(np.array([0, -1, 1, 0], np.int32), 2)
    assert [m.tolist() for m in grouping.members] == [[0, 3], [2]]


@pytest.mark.parametrize("seconds", [np.ones(2), np.ones((3, 2)), -np.ones((2, 2)), np.full((2, 2), np.nan)])
def test_wrong_costs_are_refused(seconds):
    with pytest.raises(GraphError):
        CostTable(seconds, ("given", "given"))


def test_costs_have_a_fingerprint():
    assert CostTable(np.ones((1, 2)), ("a",)).fingerprint == CostTable(np.ones((1, 2)), ("b",)).fingerprint
    assert CostTable(np.ones((1, 2)), ("a",)).fingerprint != CostTable(np.zeros((1, 2)), ("a",)).fingerprint


PATTERNS = make_graph(dict.fromkeys(["dense/kernel", "dense/bias", "conv1/conv", "conv7/conv", "Conv7_1/x"], 4))


def test_patterns():
    assert match_ops("dense/*", PATTERNS) == [0, 1]
    assert match_ops("*/kernel", PATTERNS) == [0]


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("dence/kernel", ["dense/kernel"]),
        ("*conv7", ["conv7/conv", "Conv7_1/x"]),
        ("*conv7*/y", ["conv7/conv", "Conv7_1/x"]),
        ("*/kernal*", ["dense/kernel"]),
        ("[ab]*/zz?", []),
    ],
)
def test_a_pattern_without_ops_lists_those_with_its_plain_part_or_near_ones(pattern, near):
    with pytest.raises(ConstraintError) as error:
        match_ops(pattern, PATTERNS)
    assert repr(pattern) in error.value.received
    assert error.value.hint == (f"Near names: {', '.join(near)}" if near else "The first op is 'dense/kernel'.")


def test_max_memory_of_nothing_points_to_forbid():
    with pytest.raises(ConstraintError) as error:
        Constraints(max_memory={"GPU:0": 0})
    assert "forbid={'*': 'GPU:0'}" in error.value.hint
    assert "--forbid='*=GPU:0'" in error.value.hint


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"headroom": 1.0}, "headroom 1.0"),
        ({"headroom": -0.1}, "headroom -0.1"),
        ({"headroom": "some"}, "headroom some"),
        ({"max_memory": {"GPU:0": 0}}, "max_memory of 0 bytes"),
        ({"max_memory": {"GPU:0": "lots"}}, "'lots'"),
        ({"max_memory": "10GiB"}, "max_memory '10GiB'; expected a dict"),
        ({"pin": ["a"]}, r"pin \['a'\]; expected a dict"),
        ({"pin": {"a": 0}}, "a rule with 0; expected pin={pattern: device}"),
        ({"pin": {0: "GPU:0"}}, "a rule with 0; expected pin={pattern: device}"),
        ({"forbid": {0: "GPU:0"}}, "a rule with 0"),
        ({"forbid": {"a": [0]}}, r"a rule with \[0\].*forbid={pattern: device or "),
        ({"forbid": {"a": 0}}, "a rule with 0"),
        ({"forbid": {"a": iter(["GPU:0"])}}, "a rule with <list_iterator"),  # which can be read only once
    ],
)
def test_impossible_constraints_are_refused(rules, message):
    with pytest.raises(InputError, match=message):
        Constraints(**rules)


def test_a_timeline_refuses_two_ops_at_once_and_ends_before_starts(problem):
    timeline = timeline_of(problem, [0, 0, 0, 0])
    fields = {f.name: getattr(timeline, f.name) for f in dataclasses.fields(timeline)}
    with pytest.raises(GraphError, match="a and b at once on GPU:0"):
        Timeline(**{**fields, "start_s": np.zeros(4), "finish_s": np.array([0.0, 1.0, 1.0, 1.0])})
    with pytest.raises(GraphError, match="ends before it starts"):
        Timeline(**{**fields, "finish_s": np.full(4, -1.0)})
