"""Data parallelism: each slice of the batch on a device, each variable with its update on an owner."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.graph import OpGraph
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.core.slices import Slices
from tfplace.errors import InputError
from tfplace.group.slots import readers_of, slots_of
from tfplace.local_search.devices import compute_devices, settle

_LOOKUPS = frozenset({"Gather", "GatherNd", "GatherV2"})
"""Op types that take rows from their first input; those that take them from a variable are bound to it anyway."""


class DataParallel(Placer):
    """Each slice of the batch on the device that is done with it first, each variable on an owner among those.

    A variable has its slots and its update beside it: the owner sends the value to every slice's device and is sent the
    slices' gradients, which moves as much as a ring all-reduce does, and slots are stored once. That is the sharded
    parameter server of M. Li et al.: Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014, within
    one machine, and the first stage of ZeRO (S. Rajbhandari et al., SC 2020, section 5.1).

    Slices go to devices the largest first, each to where it ends first (R. Graham: Bounds on Multiprocessing Timing
    Anomalies, 1969), so that unequal devices get what they can carry. Owners are balanced by bytes. What else stands
    once is where the variable is that is made of it. Rows are looked up where the table is, so that a slice is sent its
    rows and not the table.
    """

    citation = (
        "M. Li et al.: Scaling Distributed Machine Learning with the Parameter Server. OSDI 2014; within one machine, "
        "owners chosen by bytes."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Evaluates two placements: inputs on the host, and inputs beside the first slice.

        Raises:
          InputError: the step is not split.
        """
        problem = context.problem
        slices = problem.graph.slices
        if slices is None:
            raise InputError(
                f"data_parallel for {problem.graph.name!r}, whose batch is not split",
                "a step in slices",
                "Say slices=K (--slices=K).",
            )
        placements = [_placed(problem, slices, home) for home in _homes(problem)]
        return min(placements, key=context.key)


def _homes(problem: Problem) -> list[int]:
    """Devices where inputs may begin: the host, and the first device that computes."""
    compute = compute_devices(problem)
    host = [d for d in range(problem.num_devices) if d not in compute]
    return [*host[:1], int(compute[0])]


def _placed(problem: Problem, slices: Slices, home: int) -> IntArray:
    device = np.where(slices.slice_of >= 0, _slice_devices(problem, slices)[slices.slice_of], -1)
    owner = _owned(problem, _owners(problem, np.unique(device[device >= 0])))
    device = np.where(owner >= 0, owner, device)
    for lookup, table in _lookups(problem.graph, slices):
        device[lookup] = device[table] if device[table] >= 0 else home
    unit = np.full(problem.num_units, -1, np.int32)
    grouped = problem.grouping.unit_of
    for chosen in (device, owner):  # what is bound to a variable is with it
        placed = (grouped >= 0) & (chosen >= 0)
        unit[grouped[placed][::-1]] = chosen[placed][::-1]
    return settle(problem, np.where(unit >= 0, unit, home).astype(np.int32))


def _lookups(graph: OpGraph, slices: Slices) -> list[tuple[int, int]]:
    """Ops of slices that take rows from a table that stands once, each with the op that makes the table.

    Left out are those that take more bytes than the table has, and those of a slice that is sent the table for others.
    """
    slice_of, kinds = slices.slice_of, graph.op_types
    read = graph.edge_tensor >= 0
    readers = zip(graph.edge_tensor[read].tolist(), graph.edge_dst[read].tolist(), strict=True)
    sent = {(tensor, int(slice_of[v])) for tensor, v in readers if kinds[v] not in _LOOKUPS}
    found = []
    for v in np.flatnonzero(slice_of >= 0).tolist():
        if kinds[v] not in _LOOKUPS:
            continue
        table = graph.inputs[v][0]
        maker = int(graph.tensor_op[table])
        taken = graph.tensor_bytes[graph.op_tensors[v] : graph.op_tensors[v + 1]].sum()
        if slice_of[maker] < 0 and (table, int(slice_of[v])) not in sent and taken < graph.tensor_bytes[table]:
            found.append((v, maker))
    return found


def _slice_devices(problem: Problem, slices: Slices) -> IntArray:
    """[K] a device for each slice."""
    devices = compute_devices(problem)
    seconds = problem.costs.compute_s[:, devices]
    own = [seconds[(slices.slice_of == k) & ~problem.graph.replicable].sum(axis=0) for k in range(len(slices.sizes))]
    busy: FloatArray = np.zeros(len(devices))
    out = np.zeros(len(slices.sizes), np.int32)
    for k in sorted(range(len(own)), key=lambda k: -slices.sizes[k]):
        best = int(np.argmin(busy + own[k]))
        busy[best] += own[k][best]
        out[k] = devices[best]
    return out


def _owners(problem: Problem, devices: IntArray) -> dict[int, int]:
    """Handle op -> owner of its variable; variables of one weight and its slots have one owner."""
    graph = problem.graph
    slots = slots_of(graph)
    size: dict[int, int] = {}
    for variable in graph.variables:
        weight = slots.get(variable.op, variable.op)
        size[weight] = size.get(weight, 0) + variable.size_bytes
    held: LongArray = np.zeros(len(devices), np.int64)
    room = problem.memory_limit[devices]
    chosen: dict[int, int] = {}
    for weight in sorted(size, key=lambda op: -size[op]):
        fits = np.flatnonzero(held + size[weight] <= room)
        among = fits if len(fits) else np.arange(len(devices))
        best = int(among[np.argmin(held[among])])
        held[best] += size[weight]
        chosen[weight] = int(devices[best])
    return {variable.op: chosen[slots.get(variable.op, variable.op)] for variable in graph.variables}


def _owned(problem: Problem, owners: dict[int, int]) -> IntArray:
    """[V] the owner of each op that stands once and of which a variable is made, or that is made of one; -1 of others.

    Of an op that several owners read it is the one that is given most bytes; of one that reads what several have, the
    one that gives most.
    """
    graph, slices = problem.graph, problem.graph.slices
    assert slices is not None
    out = np.full(graph.num_ops, -1, np.int32)
    by_bond = {int(graph.resource[op]): device for op, device in owners.items() if graph.resource[op] >= 0}
    for v, bond in enumerate(graph.resource.tolist()):
        if bond in by_bond:
            out[v] = by_bond[bond]
    for op, device in owners.items():
        out[op] = device
    once = slices.slice_of < 0
    readers = readers_of(graph)
    size = np.zeros(graph.num_ops, np.int64)
    np.add.at(size, graph.tensor_op, graph.tensor_bytes)
    for v in range(graph.num_ops - 1, -1, -1):
        if out[v] >= 0 or not once[v]:
            continue
        given: dict[int, int] = {}
        for reader in readers[v]:
            if out[reader] >= 0 and once[reader]:
                device = int(out[reader])
                given[device] = given.get(device, 0) + int(size[reader]) + 1
        if given:
            out[v] = max(given, key=lambda device: (given[device], -device))
    for v in range(graph.num_ops):
        if out[v] >= 0 or not once[v]:
            continue
        taken: dict[int, int] = {}
        for tensor in graph.inputs[v]:
            maker = int(graph.tensor_op[tensor])
            if out[maker] >= 0:
                taken[int(out[maker])] = taken.get(int(out[maker]), 0) + int(graph.tensor_bytes[tensor]) + 1
        if taken:
            out[v] = max(taken, key=lambda device: (taken[device], -device))
    return out
