"""What every grouper promises."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfplace.errors import InputError
from tfplace.group.acyclic import is_acyclic, make_acyclic
from tfplace.group.merge import merge_units, renumber
from tfplace.group.unit_graph import ROOM, unit_graph, variable_bytes
from tfplace.registry import GROUPERS
from tfplace.testing import make_graph, make_problem, make_topology, random_problem
from tfplace.testing.strategies import problems

NAMES = tuple(GROUPERS)
GROUPING = tuple(name for name in NAMES if name != "units")


def drawn(seed, num_ops, tight):
    rng = np.random.default_rng(seed)
    return random_problem(rng, num_ops, num_devices=1 + seed % 4, tight=tight)


def check_rules(problem, label):
    """Numbering, kinds and variables."""
    np.testing.assert_array_equal(label, renumber(label))
    assert label.dtype == np.int32
    merge_units(problem, label)  # refuses other lengths and groups without a device
    size = variable_bytes(problem)
    for group in range(label.max(initial=-1) + 1):
        units = np.flatnonzero(label == group)
        assert len(np.unique(problem.allowed[units], axis=0)) == 1
        if len(units) > 1:
            assert size[units].sum() <= ROOM * problem.memory_limit[problem.allowed[units[0]]].min()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_ops=st.integers(1, 80),
    count=st.sampled_from([1, 2, 5, 20, 1000]),
    tight=st.booleans(),
)
def test_groups_keep_the_rules_and_are_not_too_many(name, seed, num_ops, count, tight):
    problem = drawn(seed, num_ops, tight)
    label = GROUPERS[name](problem, count)
    check_rules(problem, label)
    np.testing.assert_array_equal(label, GROUPERS[name](problem, count))
    if name != "units" and not tight:  # limits that nothing reaches
        assert label.max(initial=-1) < max(count, len(np.unique(problem.allowed, axis=0)))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(problem=problems(max_ops=12), count=st.integers(1, 6))
def test_odd_graphs_are_grouped_too(name, problem, count):
    check_rules(problem, GROUPERS[name](problem, count))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), num_ops=st.integers(1, 80), count=st.sampled_from([1, 3, 10, 40]))
def test_made_acyclic_groups_are_parts_of_groups_without_a_circle(name, seed, num_ops, count):
    problem = drawn(seed, num_ops, tight=False)
    label = GROUPERS[name](problem, count)
    split = make_acyclic(problem, label)
    assert is_acyclic(problem, split)
    check_rules(problem, split)
    for group in range(split.max(initial=-1) + 1):
        assert len(np.unique(label[split == group])) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seconds", [0.0, 1e-12, 1e12])
def test_ties_zeros_and_extremes(name, seconds):
    names = [f"op{i}" for i in range(30)]
    problem = make_problem(make_graph(dict.fromkeys(names, 4), ["op0 -> op1", "op5 -> op9"]), make_topology(3), seconds)
    check_rules(problem, GROUPERS[name](problem, 7))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_group(name):
    constants = make_problem(make_graph({"a": 4, "b": 4}, replicable=["a", "b"]), make_topology(2))
    assert GROUPERS[name](constants, 5).tolist() == []
    alone = make_problem(make_graph({"a": 4}), make_topology(1))
    assert GROUPERS[name](alone, 1).tolist() == [0]
    with pytest.raises(InputError, match="at least 1 group"):
        GROUPERS[name](alone, 0)


@pytest.mark.parametrize("name", GROUPING)
def test_large_variables_stay_apart(name):
    """Devices of 400 bytes leave a group 100: two variables of 40, and one of 150 by itself."""
    names = [f"w{i}" for i in range(6)] + ["giant"]
    graph = make_graph(
        dict.fromkeys(names, 4),
        [f"w{i} -> w{i + 1}" for i in range(5)] + ["w5 -> giant"],
        variables=dict.fromkeys(names[:-1], 40) | {"giant": 150},
    )
    problem = make_problem(graph, make_topology(2, memory=400))
    label = GROUPERS[name](problem, 1)
    assert (label == label[-1]).sum() == 1
    assert np.bincount(label, variable_bytes(problem))[: label[-1]].max() <= 100
    assert label.max() + 1 >= 4
    roomy = dataclasses.replace(problem, memory_limit=np.array([10**6, 10**6]))
    assert GROUPERS[name](roomy, 1).max() == 0


@pytest.mark.parametrize("name", GROUPING)
def test_what_has_no_choice_is_joined_first(name):
    """Ten host ops between twenty others: of eleven groups they are one."""
    names = [f"op{i}" for i in range(30)]
    host = names[1::3]
    graph = make_graph(
        dict.fromkeys(names, 4), [f"op{i} -> op{i + 1}" for i in range(29)], cpu_only=host, variables={"op0": 0}
    )
    problem = make_problem(graph, make_topology(3, types=["CPU", "GPU", "GPU"]))
    label = GROUPERS[name](problem, 11)
    assert len({*label[1::3]}) == 1
    assert unit_graph(problem).decided.sum() == 1


@pytest.mark.parametrize("name", GROUPING)
def test_colocated_ops_are_in_one_group(name):
    names = [f"op{i}" for i in range(20)]
    graph = make_graph(
        dict.fromkeys(names, 4), [f"op{i} -> op{i + 1}" for i in range(19)], resource={"op0": 0, "op9": 0, "op19": 0}
    )
    problem = make_problem(graph, make_topology(2))
    merged = merge_units(problem, GROUPERS[name](problem, 4))
    assert len({*merged.grouping.unit_of[[0, 9, 19]]}) == 1


def test_units_are_left_alone():
    problem = drawn(0, 30, tight=False)
    assert GROUPERS["units"](problem, 2).tolist() == [*range(problem.num_units)]
