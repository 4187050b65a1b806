"""What fits nowhere is known before a search, and only what helps is offered."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from tfplace.core.constraints import Constraints
from tfplace.cost.analytic import analytic_costs
from tfplace.errors import InfeasibleError
from tfplace.group.problem import formulate
from tfplace.search.impossible import ALL_DEVICES, check_possible, impossible
from tfplace.search.place import search_placement
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_topology
from tfplace.testing.strategies import placed_problems


def formulated(graph, rules=None, **topology):
    made = make_topology(2, **topology)
    return formulate(graph, made, analytic_costs(graph, made), rules or Constraints())


def table(size=300, slot=300):
    """A table and its slot, which are updated together; what reads rows of it makes little."""
    return make_graph(
        {"table": 0, "slot": 0, "rows": 20, "update": 0},
        ["table -> rows", "rows -> update", "table -> update", "slot -> update"],
        variables={"table": size, "slot": slot},
        resource={"table": 0, "rows": 0, "update": 0, "slot": 0},
    )


def words(error):
    return [way.split()[0] for way in error.ways_out]


def test_a_variable_that_fits_nowhere_is_named_with_its_bytes_and_the_devices_with_theirs():
    error = impossible(formulated(table(slot=100), memory=[200, 250]))
    assert "variable 'table' of 300 B" in str(error)
    assert [(s.device, s.limit_bytes) for s in error.shortages] == [("GPU:0", 200), ("GPU:1", 250)]
    assert all(s.need_bytes >= 400 and s.largest[:2] == (("table", 300), ("slot", 100)) for s in error.shortages)
    assert words(error) == ["Split", "Use", "Use"]
    assert not any("budget" in way or "batch" in way for way in error.ways_out)


def test_variables_that_fit_alone_but_not_together_are_not_to_be_split():
    error = impossible(formulated(table(), memory=500))
    assert "shares a device with 1 more, 600 B in all" in str(error)
    assert "Split" not in words(error)


def test_an_op_that_fits_nowhere_is_named_and_a_smaller_batch_may_help():
    graph = make_graph({"a": 600, "b": 900}, ["a -> b"])
    error = impossible(formulated(graph, memory=[1000, 1400]))
    assert "Op 'b'" in str(error) and "1.46 KiB at once" in str(error)
    assert [s.need_bytes for s in error.shortages] == [1500, 1500]
    assert "Make" in words(error)
    assert impossible(formulated(graph, memory=[1000, 1500])) is None


def test_variables_larger_than_all_memory():
    graph = make_graph(dict.fromkeys("abc", ()), variables=dict.fromkeys("abc", 60))
    error = impossible(formulated(graph, memory=80))
    assert [(s.device, s.need_bytes, s.limit_bytes) for s in error.shortages] == [(ALL_DEVICES, 180, 160)]
    assert impossible(formulated(graph, memory=90)) is None  # though two do not fit on one


def test_limits_are_to_be_raised_only_if_the_device_has_more():
    graph = table(slot=0)
    limited = Constraints(max_memory={"GPU:0": 200})
    assert "Raise" not in words(impossible(formulated(graph, limited, memory=200)))
    error = impossible(formulated(graph, limited, memory=[700, 200]))
    assert error.ways_out[0].startswith("Raise max_memory of GPU:0")
    roomier = Constraints(headroom=0.9)
    assert impossible(formulated(graph, roomier, memory=700)).ways_out[0].startswith("Lower the headroom")


@pytest.mark.parametrize(
    ("rules", "rule"),
    [
        (Constraints(pin={"tab*": "GPU:0", "x": "GPU:1"}), "pin 'tab*'"),
        (Constraints(forbid={"rows": "GPU:1"}), "forbid 'rows'"),
        (Constraints(colocate=[["table", "x"]]), "colocate table, x"),
    ],
)
def test_rules_are_to_be_dropped_only_if_there_is_room_without_them(rules, rule):
    graph = make_graph(
        {"table": 0, "x": 0, "rows": 20},
        ["table -> rows"],
        variables={"table": 300, "x": 500},
        resource={"table": 0, "rows": 0},
    )
    error = impossible(formulated(graph, rules, memory=[250, 700]))
    (dropped,) = [way for way in error.ways_out if way.startswith("Drop")]
    assert rule in dropped
    assert "pin 'x'" not in dropped
    small = impossible(formulated(graph, rules, memory=[250, 250]))
    assert "Drop" not in words(small)


def test_a_search_says_so_before_it_evaluates_anything():
    problem = formulated(table(), memory=200)

    class Counted(Simulator):
        def __call__(self, unit_device):
            pytest.fail("evaluated")

        def keys(self, unit_devices, limit_s=np.inf):
            pytest.fail("evaluated")

    with pytest.raises(InfeasibleError) as error:
        search_placement(problem, evaluator=Counted(problem), budget=10)
    assert error.value.shortages


@given(placed_problems())
@settings(max_examples=60, deadline=None)
def test_a_problem_with_a_placement_that_fits_is_never_refused(made):
    problem, unit_device = made
    peak = Simulator(problem).devices(problem.expand(unit_device)).peak_bytes
    check_possible(dataclasses.replace(problem, memory_limit=np.asarray(peak, np.int64)))
