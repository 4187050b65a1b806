"""Devices that are alike, and placements that differ in their names alone."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem


def alike(problem: Problem) -> IntArray:
    """[D] the lowest device like each: of the same type, speed, memory, rules and links, but for what links share."""
    topology, count = problem.topology, problem.num_devices
    first = np.arange(count, dtype=np.int32)
    for d in range(count):
        for e in range(d):
            swap = np.arange(count)
            swap[[d, e]] = e, d
            same = (
                first[e] == e
                and topology.devices[d].type == topology.devices[e].type
                and problem.memory_limit[d] == problem.memory_limit[e]
                and np.array_equal(problem.allowed[:, d], problem.allowed[:, e])
                and np.array_equal(problem.costs.compute_s[:, d], problem.costs.compute_s[:, e])
                and all(
                    np.array_equal(table, table[np.ix_(swap, swap)])
                    for table in (topology.bandwidth, topology.latency_s)
                )
            )
            if same:
                first[d] = e
                break
    return first


def named_by_use(rows: IntArray, first: IntArray) -> IntArray:
    """[G] the same placement, in which of devices that are alike the lowest is used first, then the next.

    Args:
      rows: [G] devices.
      first: [D] of `alike`.
    """
    _, order = np.unique(rows, return_index=True)
    used = rows[np.sort(order)].tolist()  # in the order of their first use
    names = np.arange(len(first), dtype=np.int32)
    for kind in np.unique(first).tolist():
        members = np.flatnonzero(first == kind).tolist()
        taken = [d for d in used if first[d] == kind]
        names[[*taken, *(d for d in members if d not in taken)]] = members
    return names[rows]
