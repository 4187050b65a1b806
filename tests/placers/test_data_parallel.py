"""data_parallel: a slice of the batch on each device, each variable with its update on an owner."""

import dataclasses

import numpy as np
import pytest

from tfplace.comparison.comparison import compare_placers
from tfplace.core.slices import Slices
from tfplace.errors import InputError
from tfplace.registry import PLACERS
from tfplace.search.place import search_placement
from tfplace.testing.graphs import make_graph
from tfplace.testing.problems import make_problem, make_topology

MB = 2**20


def split_step(slices, weights):
    """A step of matrix products: each slice reads every weight, and each weight is updated by the slices' sum."""
    ops, edges, variables, resource, of = {}, [], {}, {}, {}
    for i, size in enumerate(weights):
        handle, read, combined, update = (f"w{i}{part}" for part in ("", "/read", "/combined", "/update"))
        ops |= {handle: 8, read: size}
        edges.append(f"{handle} -> {read}")
        variables[handle] = size
        resource |= dict.fromkeys((handle, read, update), i)
        for k in range(slices):
            op = f"slice{k}/op{i}"
            ops[op], of[op] = size, k
            edges.append(f"{read} -> {op}")
            if i:
                edges.append(f"slice{k}/op{i - 1} -> {op}")
        ops |= {combined: size, update: ()}
        edges += [*(f"slice{k}/op{i} -> {combined}" for k in range(slices)), f"{handle} -> {update}"]
        edges.append(f"{combined} -> {update}")
    graph = make_graph(ops, edges, variables=variables, resource=resource)
    slice_of = np.array([of.get(name, -1) for name in graph.op_names], np.int32)
    return dataclasses.replace(graph, slices=Slices((4,) * slices, slice_of, graph.op_names))


def place(graph, topology, seconds=None):
    costs = np.ones((graph.num_ops, len(topology.devices))) if seconds is None else seconds
    problem = make_problem(graph, topology, costs)
    return search_placement(problem, placer="data_parallel", budget=10, baselines=()).devices


def test_each_slice_is_on_a_device_and_each_update_beside_its_variable():
    devices = place(split_step(3, [MB] * 6), make_topology(3))
    slices = [{devices[f"slice{k}/op{i}"] for i in range(6)} for k in range(3)]
    assert sorted(map(sorted, slices)) == [["GPU:0"], ["GPU:1"], ["GPU:2"]]
    for i in range(6):
        assert len({devices[f"w{i}{part}"] for part in ("", "/read", "/combined", "/update")}) == 1


def test_owners_have_the_same_bytes():
    weights = [8, 5, 4, 3, 3, 1]  # of 24, in three ways that are equal
    devices = place(split_step(3, [n * MB for n in weights]), make_topology(3))
    held = dict.fromkeys(set(devices.values()), 0)
    for i, size in enumerate(weights):
        held[devices[f"w{i}"]] += size
    assert sorted(held.values()) == [8, 8, 8]


def test_a_device_of_twice_the_speed_has_two_of_three_slices():
    graph, topology = split_step(3, [MB] * 2), make_topology(2)
    seconds = np.tile([1.0, 2.0], (graph.num_ops, 1))
    devices = place(graph, topology, seconds)
    on = [devices[f"slice{k}/op0"] for k in range(3)]
    assert sorted(on) == ["GPU:0", "GPU:0", "GPU:1"]


def test_the_host_holds_no_slice_and_no_variable():
    devices = place(split_step(2, [MB] * 2), make_topology(3, types=["CPU", "GPU", "GPU"]))
    assert "CPU:0" not in {device for op, device in devices.items() if op.startswith(("slice", "w"))}


def lookups(table=10 * MB, rows=1000, whole=()):
    """Two slices that look rows up in a table, and use a weight as large; slices in `whole` read all of the table."""
    ops = {"t": 8, "t/read": table, "w": 8, "w/read": table}
    edges, types, of = ["t -> t/read", "w -> w/read"], {}, {}
    for k in range(2):
        ids, taken, used = (f"slice{k}/{part}" for part in ("ids", "rows", "used"))
        ops |= {ids: 8, taken: rows, used: 8}
        edges += [f"t/read -> {taken}", f"{ids} -> {taken}", f"{taken} -> {used}", f"w/read -> {used}"]
        edges += [f"t/read -> {used}"] if k in whole else []
        types[taken] = "GatherV2"
        of |= dict.fromkeys((ids, taken, used), k)
    resource = {"t": 0, "t/read": 0, "w": 1, "w/read": 1}
    graph = make_graph(ops, edges, types=types, variables={"t": table, "w": table}, resource=resource)
    slice_of = np.array([of.get(name, -1) for name in graph.op_names], np.int32)
    return dataclasses.replace(graph, slices=Slices((4, 4), slice_of, graph.op_names))


def test_rows_are_looked_up_where_the_table_is():
    devices = place(lookups(), make_topology(2))
    assert devices["slice0/used"] != devices["slice1/used"]
    assert devices["slice0/rows"] == devices["slice1/rows"] == devices["t/read"]


def test_rows_are_looked_up_where_the_table_is_sent_anyway():
    assert all(
        devices[f"slice{k}/rows"] == devices[f"slice{k}/used"]
        for devices in (place(lookups(whole=[0, 1]), make_topology(2)), place(lookups(rows=11 * MB), make_topology(2)))
        for k in range(2)
    )


def test_a_step_that_is_not_split_is_refused():
    graph = dataclasses.replace(split_step(2, [MB]), slices=None)
    with pytest.raises(InputError, match="slices"):
        place(graph, make_topology(2))


def test_auto_is_no_slower():
    problem = make_problem(split_step(4, [MB] * 5), make_topology(4))
    parallel, auto = (
        search_placement(problem, placer=name, budget="300 evaluations", baselines=()).cost.step_s
        for name in ("data_parallel", "auto")
    )
    assert auto <= parallel
    assert PLACERS["data_parallel"].citation


def test_it_is_what_other_placements_of_slices_are_set_beside():
    problem = make_problem(split_step(2, [MB]), make_topology(2))
    assert "data_parallel" in search_placement(problem, placer="heft", budget=10).baselines
    compared = compare_placers(problem, budget="5 evaluations", seeds=1)
    assert "data_parallel" in compared.ranked()
