"""The devices that work is spread over, and placements on one of them."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem


def compute_devices(problem: Problem) -> IntArray:
    """Devices that work is spread over: the accelerators, or all devices if there are none.

    A host CPU beside accelerators is a last resort: for ops without a kernel elsewhere, and for memory.
    """
    types = [d.type for d in problem.topology.devices]
    accelerators = [i for i, t in enumerate(types) if t != "CPU"]
    return np.array(accelerators or range(len(types)), np.int32)


def settle(problem: Problem, wanted: IntArray) -> IntArray:
    """[U] the wanted devices, but where a unit may not be there, the fastest device it may be on.

    Of devices equally fast it is that with the lowest index.
    """
    fastest = problem.unit_seconds.argmin(axis=1).astype(np.int32)
    fits = problem.allowed[np.arange(problem.num_units), wanted]
    return np.where(fits, wanted, fastest).astype(np.int32)


def single_device(problem: Problem, device: int) -> IntArray:
    """[U] everything that may be on `device` there."""
    return settle(problem, np.full(problem.num_units, device, np.int32))


def single_devices(problem: Problem) -> list[IntArray]:
    """[D] of [U]: everything on one device, for each device, that with the least compute seconds first."""
    placed, units = [single_device(problem, d) for d in range(problem.num_devices)], np.arange(problem.num_units)
    order = np.argsort([problem.unit_seconds[units, devices].sum() for devices in placed], kind="stable")
    return [placed[d] for d in order.tolist()]
