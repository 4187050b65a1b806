"""Kernels and rules become allowed devices; contradictions are refused by name."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

import tfplace
from tfplace.core.constraints import Constraints
from tfplace.cost.analytic import analytic_costs
from tfplace.errors import ConstraintError, InputError, TopologyError, UnknownNameError
from tfplace.group.problem import formulate
from tfplace.testing import make_graph, make_topology

TOPOLOGY = make_topology(3, types=["CPU", "GPU", "GPU"], memory=[64, 100, 100])
ALL, CPU, GPU0 = [True] * 3, [True, False, False], [False, True, False]


def graph(**settings):
    return make_graph(
        {"net/in": 4, "net/dense/w": 8, "net/dense/mul": 4, "net/strings": 4, "net/out": 4},
        ["net/in -> net/dense/mul", "net/dense/w -> net/dense/mul", "net/dense/mul -> net/out"],
        cpu_only=["net/strings"],
        **settings,
    )


def problem(rules=None, topology=TOPOLOGY, **settings):
    g = graph(**settings)
    return formulate(g, topology, analytic_costs(g, topology), rules or Constraints())


def test_kernels_decide_and_members_intersect():
    assert problem().allowed.tolist() == [ALL, ALL, ALL, CPU, ALL]
    assert problem(resource={"net/out": 0, "net/strings": 0}).allowed.tolist() == [ALL, ALL, ALL, CPU]


def test_pin_and_forbid_by_pattern():
    assert problem(Constraints(pin={"net/dense/*": "GPU:0"})).allowed.tolist() == [ALL, GPU0, GPU0, CPU, ALL]
    rules = Constraints(forbid={"net/[io]*": ["CPU:*", "GPU:1"]})
    assert problem(rules).allowed.tolist() == [GPU0, ALL, ALL, CPU, GPU0]
    assert problem(Constraints(forbid={"net/in": "CPU:0"})).allowed[0].tolist() == [False, True, True]


def test_pin_to_a_pattern_of_devices():
    assert problem(Constraints(pin={"net/in": "GPU:*"})).allowed[0].tolist() == [False, True, True]


def test_colocate_joins_all_patterns_of_a_list():
    p = problem(Constraints(colocate=[["net/in", "net/o*"]]))
    assert p.grouping.unit_of.tolist() == [0, 1, 2, 3, 0]


def test_pinned_constants_get_a_unit():
    p = problem(Constraints(pin={"net/dense/w": "GPU:1"}), replicable=["net/dense/w"])
    assert p.grouping.unit_of.tolist() == [0, 1, 2, 3, 4]
    assert p.allowed[1].tolist() == [False, False, True]


def test_constants_follow_their_first_reader():
    g = make_graph(
        {"k": 4, "x": 4, "c": 4, "lone": 4},
        ["^k -> x", "k -> c"],
        replicable=["k", "lone"],
    )
    p = formulate(g, TOPOLOGY, analytic_costs(g, TOPOLOGY), Constraints())
    assert p.follows.tolist() == [2, 1, 2, 3]  # a data edge before a control edge; itself without any
    assert p.expand(np.array([0, 1])).tolist() == [1, 0, 1, 0]


def test_memory_limits():
    rules = Constraints(max_memory={"GPU:0": "50B", "CPU:*": 640}, headroom=0.1)
    assert problem(rules).memory_limit.tolist() == [576, 45, 90]


@pytest.mark.parametrize("first", ["GPU:0", "GPU:*"])
def test_two_memory_limits_of_one_device_have_to_agree(first):
    second = {"GPU:0": "GPU:*", "GPU:*": "GPU:0"}[first]
    same = Constraints(max_memory={first: "50B", second: 50})
    assert problem(same).memory_limit.tolist()[1:] == [50, 50]
    with pytest.raises(ConstraintError, match=r"max_memory of .* expected one limit for 'GPU:0', which both name"):
        problem(Constraints(max_memory={first: 50, second: 60}))


def test_a_workspace_is_never_available():
    devices = [replace(d, workspace_bytes=7) for d in TOPOLOGY.devices]
    lower = replace(TOPOLOGY, devices=tuple(devices))
    g = make_graph({"x": 4}, [])
    limits = [formulate(g, t, analytic_costs(g, t), Constraints()).memory_limit for t in (TOPOLOGY, lower)]
    assert (limits[0] - limits[1]).tolist() == [7] * len(devices)


def test_a_pattern_without_ops_lists_near_names():
    with pytest.raises(ConstraintError, match="net/dense/mul"):
        problem(Constraints(pin={"net/dense/mull": "GPU:0"}))
    with pytest.raises(ConstraintError, match="matches no op"):
        problem(Constraints(colocate=[["net/in", "zzz"]]))


def test_unknown_devices_list_the_known():
    with pytest.raises(UnknownNameError, match="GPU:0"):
        problem(Constraints(pin={"net/in": "GPU:7"}))
    with pytest.raises(UnknownNameError, match="TPU"):
        problem(Constraints(max_memory={"TPU:*": 5}))


@pytest.mark.parametrize(
    ("rules", "settings", "words"),
    [
        (Constraints(pin={"net/strings": "GPU:0"}), {}, ["pin 'net/strings'", "GPU:0", "net/strings"]),
        (Constraints(pin={"net/in": "GPU:0", "net/i*": "GPU:1"}), {}, ["pin 'net/i*' to 'GPU:1'", "net/in"]),
        (Constraints(pin={"*mul": "GPU:0"}, forbid={"net/dense/*": ["GPU:0"]}), {}, ["forbid 'net/dense/*'", "mul"]),
        (Constraints(forbid={"net/in": ["*"]}), {}, ["forbid 'net/in'", "net/in"]),
        (
            Constraints(pin={"net/in": "GPU:0", "net/out": "GPU:1"}),
            {"resource": {"net/in": 0, "net/out": 0}},
            ["pin 'net/out'", "net/in and net/out"],
        ),
    ],
)
def test_contradictions_name_the_rule_and_the_ops(rules, settings, words):
    with pytest.raises(ConstraintError) as error:
        problem(rules, **settings)
    for word in words:
        assert word in str(error.value)


BOUND = {
    "variables": {"net/dense/w": 8},
    "resource": {"net/dense/w": 0, "net/dense/mul": 0},
}


@pytest.mark.parametrize(
    ("rules", "texts"),
    [
        (
            Constraints(pin={"net/dense/w": "GPU:0", "net/dense/mul": "GPU:1"}),
            ["pin 'net/dense/w' to 'GPU:0'", "pin 'net/dense/mul' to 'GPU:1'"],
        ),
        (
            Constraints(pin={"net/dense/w": "GPU:0"}, forbid={"net/dense/mul": ["GPU:*"]}),
            ["pin 'net/dense/w' to 'GPU:0'", "forbid 'net/dense/mul' on GPU:*"],
        ),
    ],
)
def test_rules_that_would_split_what_a_variable_binds_name_both_and_the_variable(rules, texts):
    with pytest.raises(ConstraintError) as error:
        problem(rules, **BOUND)
    assert all(text in error.value.received for text in texts)
    assert "net/dense/w and net/dense/mul, which variable 'net/dense/w' binds" in error.value.received


def test_a_pin_that_a_bound_op_has_no_kernel_for_names_what_binds_them():
    settings = {"variables": {"net/dense/w": 8}, "resource": {"net/dense/w": 0, "net/strings": 0}}
    rules = Constraints(pin={"net/dense/w": "GPU:0"}, colocate=[["net/dense/w", "net/dense/mul"]])
    with pytest.raises(ConstraintError) as error:
        problem(rules, **settings)
    assert "pin 'net/dense/w' to 'GPU:0'" in error.value.received
    assert "net/dense/w and net/strings, which a resource binds" in error.value.received


def test_pins_of_what_a_rule_joins_name_that_rule():
    rules = Constraints(pin={"net/in": "GPU:0", "net/out": "GPU:1"}, colocate=[["net/in", "net/out"]])
    with pytest.raises(ConstraintError) as error:
        problem(rules)
    assert "net/in and net/out, which the rule colocate net/in, net/out binds" in error.value.received


def test_no_device_with_a_kernel():
    with pytest.raises(ConstraintError, match="net/strings"):
        problem(topology=make_topology(2))


def test_a_device_type_without_known_kernels_is_refused():
    with pytest.raises(TopologyError, match=r"TPU:0.*CPU, GPU"):
        problem(topology=make_topology(2, types=["CPU", "TPU"]))


def test_costs_of_another_graph_are_refused():
    g = graph()
    costs = analytic_costs(g, make_topology(2))
    with pytest.raises(ConstraintError, match="shape"):
        formulate(g, TOPOLOGY, dataclasses.replace(costs), Constraints())


def test_what_formulate_of_the_api_refuses(tmp_path):
    graph = make_graph({"a": 8, "b": 8}, ["a -> b"])
    graph.save(tmp_path / "graph.npz")
    assert tfplace.formulate(tmp_path / "graph.npz", "2xP100").num_units == 2
    with pytest.raises(InputError, match="constraints of type dict"):
        tfplace.formulate(graph, "2xP100", constraints={"pin": {"a": "GPU:0"}})
    costs = tfplace.formulate(graph, "2xP100").costs
    with pytest.raises(InputError, match=r"costs of type ndarray; expected .*CostTable\("):
        tfplace.formulate(graph, "2xP100", costs=costs.compute_s)
    with pytest.raises(InputError, match="max_memory=5; expected a dict such as"):
        tfplace.formulate(graph, "2xP100", max_memory=5)
    with pytest.raises(InputError, match="a OpGraph to simulate; expected a problem"):
        tfplace.simulate(graph, {"a": "GPU:0"})
    with pytest.raises(InputError, match="costs and a profile"):
        tfplace.formulate(graph, "2xP100", costs=costs, profile="none.json")


@pytest.mark.parametrize("given", [{"GPU:0": 80}, {"GPU:[0]": 80}])
@pytest.mark.parametrize("before", [{"GPU:*": 50}, {"GPU:0": 50, "GPU:1": 50}])
def test_max_memory_overrides_that_of_the_constraints_whatever_their_patterns(given, before):
    problem = tfplace.formulate(graph(), TOPOLOGY, constraints=Constraints(max_memory=before), max_memory=given)
    assert problem.memory_limit.tolist() == [64, 80, 50]
    both = tfplace.formulate(graph(), TOPOLOGY, constraints=Constraints(max_memory=before), max_memory={"*": 60})
    assert both.memory_limit.tolist() == [60, 60, 60]
