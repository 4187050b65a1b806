"""m-TOPO: devices filled one after the other in topological order."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.group.acyclic import precedence
from tfplace.group.unit_graph import variable_bytes
from tfplace.local_search.devices import compute_devices, settle


class MTopo:
    """Units in topological order, on one device until its share of the memory is full, then on the next.

    A unit's memory is its variables and everything its ops make. A device's share is its part of the whole by its
    memory limit, plus the largest unit: for equal devices the paper's total / n + largest. So all units find a place.
    Departures: the largest unit is added only as far as the device's limit allows, and the last device takes what that
    leaves over; a unit comes when its first op does.
    """

    citation = (
        "B. Jeon, L. Cai, P. Srivastava, J. Jiang, X. Ke, Y. Meng, C. Xie, I. Gupta: Baechi: Fast Device Placement of "
        "Machine Learning Graphs. SoCC 2020, section 3.1."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Fills once; needs no evaluation."""
        problem = context.problem
        devices = compute_devices(problem)
        size = unit_bytes(problem)
        share = shares(problem, devices, size)
        device = np.empty(problem.num_units, np.int32)
        held, k = 0.0, 0
        for unit in precedence(problem).order.tolist():
            if held + size[unit] > share[k] and k + 1 < len(devices):
                held, k = 0.0, k + 1
            held += size[unit]
            device[unit] = devices[k]
        return settle(problem, device)


def unit_bytes(problem: Problem) -> FloatArray:
    """[U] bytes of the variables of each unit and of all its ops' outputs, each counted once."""
    graph = problem.graph
    unit = problem.grouping.unit_of[graph.tensor_op]
    inside = unit >= 0
    size = variable_bytes(problem)
    np.add.at(size, unit[inside], graph.tensor_bytes[inside])
    return size


def shares(problem: Problem, devices: IntArray, size: FloatArray) -> FloatArray:
    """[K] bytes each of the devices is filled with."""
    limit = problem.memory_limit[devices].astype(np.float64)
    total = float(limit.sum())
    part = limit / total if total else np.full(len(devices), 1.0 / len(devices))
    fair = float(size.sum()) * part
    return np.maximum(fair, np.minimum(fair + float(size.max(initial=0.0)), limit))
