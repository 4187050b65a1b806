"""Orders of devices for the stages of a pipeline, and groups of neighbors among them."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem


def device_orders(problem: Problem, devices: IntArray) -> list[IntArray]:
    """Devices in the orders in which stages may be given to them: by speed both ways, and neighbor after neighbor.

    Args:
      problem: what is placed.
      devices: some of its devices.
    """
    fastest = by_speed(problem, devices)
    orders = [fastest, neighbors(problem, fastest)]
    if len({*seconds_of(problem, devices).tolist()}) > 1:
        orders.append(fastest[::-1])
    return [np.array(order, np.int32) for order in dict.fromkeys(tuple(order.tolist()) for order in orders)]


def by_speed(problem: Problem, devices: IntArray) -> IntArray:
    """The fastest first."""
    return devices[np.argsort(seconds_of(problem, devices), kind="stable")]


def seconds_of(problem: Problem, devices: IntArray) -> FloatArray:
    """[W] that all units take on each of some devices, without those that may not be on any of them."""
    seconds = problem.unit_seconds[:, devices]
    total: FloatArray = np.where(np.isfinite(seconds), seconds, 0.0).sum(axis=0)
    return total


def neighbors(problem: Problem, devices: IntArray) -> IntArray:
    """The same devices from the first on, each followed by the one left with the widest link from it."""
    left, out = devices.tolist()[1:], devices.tolist()[:1]
    while left:
        out.append(max(left, key=lambda d: problem.topology.bandwidth[out[-1], d]))
        left.remove(out[-1])
    return np.array(out, np.int32)


def neighbor_groups(problem: Problem, devices: IntArray, size: int) -> list[IntArray]:
    """Groups of so many devices with wide links among them; the first that is left and those nearest to it, again.

    Args:
      problem: what is placed.
      devices: a multiple of `size`.
      size: of each group.
    """
    left, out = devices.tolist(), []
    while left:
        width = problem.topology.bandwidth[left[0]]
        group = left[:1] + sorted(left[1:], key=lambda d: -width[d])[: size - 1]
        left = [d for d in left if d not in group]
        out.append(np.array(group, np.int32))
    return out
