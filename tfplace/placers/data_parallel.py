"""Data parallelism: each slice of the batch on a device, each variable with its update on an owner."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.graph import OpGraph
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.core.slices import PACKED, Slices
from tfplace.errors import InputError
from tfplace.group.owners import weights_of_ops
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
        return min(by_slice(problem, slices, slice_devices(problem, slices)), key=context.key)


def by_slice(problem: Problem, slices: Slices, slice_device: IntArray) -> list[IntArray]:
    """Placements [U] with slice k on device `slice_device[k]`: inputs on the host, if there is one, or on the first."""
    compute = compute_devices(problem)
    host = [d for d in range(problem.num_devices) if d not in compute]
    return [_placed(problem, slices, slice_device, home) for home in (*host[:1], int(compute[0]))]


def _placed(problem: Problem, slices: Slices, slice_device: IntArray, home: int) -> IntArray:
    device = np.where(slices.slice_of >= 0, slice_device[slices.slice_of], -1)
    weight_of = weights_of_ops(problem.graph)
    owners = _owners(problem, weight_of, np.unique(device[device >= 0]))
    owner = np.array([owners.get(weight, -1) for weight in weight_of.tolist()], np.int32)
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


def slice_devices(problem: Problem, slices: Slices) -> IntArray:
    """[K] a device for each slice, the largest slices first, each where it ends first."""
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


def _owners(problem: Problem, weight_of: IntArray, devices: IntArray) -> dict[int, int]:
    """Variable -> its owner, with all that goes with it; of those that stand once."""
    size: dict[int, int] = {}
    packed = _packed(problem.graph, weight_of)
    for variable in problem.graph.variables:
        weight = int(weight_of[variable.op])
        if weight < 0:
            continue
        weight = packed.get(weight, weight)
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
    return chosen | {weight: chosen[first] for weight, first in packed.items()}


def _packed(graph: OpGraph, weight_of: IntArray) -> dict[int, int]:
    """Variable that is sent in a pack -> one of those that are, so that all of them have one owner."""
    assert graph.slices is not None
    apart = {v for v, name in enumerate(graph.op_names) if name.startswith(PACKED) and graph.op_types[v] == "SplitV"}
    joins = {v for v, name in enumerate(graph.op_names) if name.startswith(PACKED) and graph.op_types[v] == "ConcatV2"}
    found: dict[int, None] = {}
    for src, dst in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        if src in apart and weight_of[dst] >= 0:
            found[int(weight_of[dst])] = None
        if dst in joins and weight_of[src] >= 0:
            found[int(weight_of[src])] = None
    return dict.fromkeys(found, next(iter(found), -1))
