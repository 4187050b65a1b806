"""Devices that are alike, and placements that differ in their names alone."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.schedule.list_scheduling.tasks import link_seconds
from tfplace.simulation.joint import twins


def alike(problem: Problem) -> IntArray:
    """[D] the lowest device like each: of the same type, speed, memory, rules and links, but for what links share."""
    types = [device.type for device in problem.topology.devices]
    kinds = [types.index(kind) for kind in types]
    rows = np.vstack([np.array(kinds, np.float64), problem.memory_limit, problem.allowed, problem.costs.compute_s])
    return twins(rows, link_seconds(problem))


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
