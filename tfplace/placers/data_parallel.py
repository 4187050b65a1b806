"""Data parallelism: each slice of the batch on a device, each variable with its update on an owner."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.core.slices import Slices
from tfplace.group.owners import packed_weights, weights_of_ops
from tfplace.group.sharing import balanced_owners, balanced_slices, row_lookups, split_slices
from tfplace.local_search.devices import compute_devices, settle


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
    needs_slices = True

    def place(self, context: SearchContext) -> IntArray:
        """Evaluates two placements: inputs on the host, and inputs beside the first slice.

        Raises:
          InputError: the step is not split.
        """
        problem = context.problem
        slices = split_slices(problem.graph, "data_parallel")
        return min(by_slice(problem, slices, slice_devices(problem, slices)), key=context.key)


def by_slice(problem: Problem, slices: Slices, slice_device: IntArray) -> list[IntArray]:
    """Placements [U] with slice k on device `slice_device[k]`: inputs on the host, if there is one, or on the first."""
    compute = compute_devices(problem)
    host = [d for d in range(problem.num_devices) if d not in compute]
    device, owner = _with_owners(problem, slices, slice_device)
    lookups = row_lookups(problem.graph, slices)
    placements = []
    for home in (*host[:1], int(compute[0])):
        here = device.copy()
        for lookup, table in lookups:
            here[lookup] = here[table] if here[table] >= 0 else home
        unit = np.full(problem.num_units, -1, np.int32)
        grouped = problem.grouping.unit_of
        for chosen in (here, owner):  # what is bound to a variable is with it
            placed = (grouped >= 0) & (chosen >= 0)
            unit[grouped[placed][::-1]] = chosen[placed][::-1]
        placements.append(settle(problem, np.where(unit >= 0, unit, home).astype(np.int32)))
    return placements


def _with_owners(problem: Problem, slices: Slices, slice_device: IntArray) -> tuple[IntArray, IntArray]:
    """[V] the device of each op of a slice, or of what goes with a variable, and [V] of the latter alone; else -1."""
    device = np.where(slices.slice_of >= 0, slice_device[slices.slice_of], -1)
    weight_of = weights_of_ops(problem.graph)
    among = np.unique(device[device >= 0])
    owners = balanced_owners(problem, weight_of, lambda _: among, packed_weights(problem.graph, weight_of))
    owner = np.array([owners.get(weight, -1) for weight in weight_of.tolist()], np.int32)
    return np.where(owner >= 0, owner, device), owner


def slice_devices(problem: Problem, slices: Slices) -> IntArray:
    """[K] a device for each slice, the largest slices first, each where it ends first."""
    devices = compute_devices(problem)
    seconds = problem.costs.compute_s[:, devices]
    own = [seconds[(slices.slice_of == k) & ~problem.graph.replicable].sum(axis=0) for k in range(len(slices.sizes))]
    return devices[balanced_slices(slices.sizes, np.array(own))]
