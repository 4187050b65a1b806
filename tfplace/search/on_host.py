"""Optimizer slots, or variables with their slots, in the memory of the host.

J. Ren et al.: ZeRO-Offload, USENIX ATC 2021, section 3: gradients are sent to the host as they are made, and the
optimizer's update runs where its state is. Departures: here an update is sent back as one tensor for each variable, or
the variable's value is sent at the beginning of the step; no step is delayed; and only as many slots or variables are
on the host, the largest first, as are needed for the step to fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.group.slots import readers_of, slots_of

SLOTS, VARIABLES = "slots", "variables"
"""What is on the host: optimizer slots only, or variables as well."""

ALL = 0.9
"""Part of the ops above which a step runs on the host, and does not only keep something there."""

_LITTLE = 0.01
"""Part of the bytes of all variables below which they are no remedy: counters, states of draws."""


def host_of(problem: Problem) -> int | None:
    """The CPU beside accelerators; None if there is none."""
    types = [device.type for device in problem.topology.devices]
    return types.index("CPU") if "CPU" in types and len({*types}) > 1 else None


def held_by_host(problem: Problem, op_device: IntArray) -> str:
    """`VARIABLES` or `SLOTS` if a placement has trained variables or only slots on the host, but not nearly all ops.

    Args:
      problem: what is placed.
      op_device: [V].
    """
    graph, host = problem.graph, host_of(problem)
    runs = ~graph.replicable
    if host is None or (op_device[runs] == host).mean() > ALL:
        return ""
    total = sum(v.size_bytes for v in graph.variables)
    there = [v for v in graph.variables if op_device[v.op] == host]
    for what, some in ((VARIABLES, [v for v in there if v.trainable]), (SLOTS, there)):
        if sum(v.size_bytes for v in some) > _LITTLE * total:
            return what
    return ""


def on_host(
    problem: Problem, op_device: IntArray, what: str, evaluate: Callable[[IntArray], StepCost]
) -> IntArray | None:
    """[U] a placement with the fewest slots or variables on the host with which it fits, or all of them.

    Args:
      problem: what is placed.
      op_device: [V] the placement.
      what: `SLOTS` or `VARIABLES`.
      evaluate: [U] devices -> cost.

    Returns:
      None if there is no host, or nothing that could be there and is not.
    """
    host = host_of(problem)
    if host is None:
        return None
    updates = _Updates(problem)
    weights = updates.weights(op_device, what, host)
    if not weights:
        return None
    units = problem.gather(op_device)

    def moved(count: int) -> IntArray:
        there = updates.units([op for ops in weights[:count] for op in ops])
        out = units.copy()
        out[there[problem.allowed[there, host]]] = host
        return out

    if np.array_equal(moved(len(weights)), units):
        return None
    low, high = 0, len(weights)
    if evaluate(moved(high)).feasible:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if evaluate(moved(middle)).feasible else (middle, high)
    return moved(high)


class _Updates:
    """Which ops go with slots and variables to the host."""

    def __init__(self, problem: Problem) -> None:
        self._graph, self._unit_of = problem.graph, problem.grouping.unit_of
        self._slots, self._readers = slots_of(problem.graph), readers_of(problem.graph)

    def weights(self, op_device: IntArray, what: str, host: int) -> list[list[int]]:
        """For each weight the ops that make the handles of what is not on the host and is to be, the largest first."""
        graph, of = self._graph, dict[int, list[int]]()
        for slot, weight in self._slots.items():
            of.setdefault(weight, []).append(slot)
        if what == VARIABLES:
            for v in graph.variables:
                if v.trainable:
                    of.setdefault(v.op, []).append(v.op)
        size = {v.op: v.size_bytes for v in graph.variables}
        elsewhere = [[op for op in ops if op_device[op] != host] for ops in of.values()]
        return sorted(filter(None, elsewhere), key=lambda ops: -sum(size[op] for op in ops))

    def units(self, handles: list[int]) -> IntArray:
        """Units of variables and of what computes their updates.

        That is what follows from the values of slots, and ops before it for which nothing more has to be sent, such as
        the square of a gradient.
        """
        graph, readers, unit_of = self._graph, self._readers, self._unit_of
        stay = np.zeros(len(unit_of), np.bool_)  # variables that are not moved, with all that is bound to them
        bound = {int(unit_of[v.op]) for v in graph.variables} - {int(unit_of[op]) for op in handles} - {-1}
        stay[np.isin(unit_of, [*bound])] = True
        moved = np.zeros(graph.num_ops, np.bool_)
        moved[[op for op in handles if op in self._slots]] = True
        for v in range(graph.num_ops):  # in a topological order
            if moved[v]:
                moved[readers[v]] = ~stay[readers[v]]
        moved[np.isin(unit_of, unit_of[handles]) & (unit_of >= 0)] = True
        read = np.zeros(graph.num_tensors, np.bool_)
        for v in np.flatnonzero(moved).tolist():
            read[list(graph.inputs[v])] = True
        for v in range(graph.num_ops - 1, -1, -1):
            after, inputs = readers[v], graph.inputs[v]
            if after and inputs and not moved[v] and not stay[v] and moved[after].all():
                moved[v] = all(read[t] or graph.replicable[graph.tensor_op[t]] for t in inputs)
        there: IntArray = np.unique(unit_of[moved])
        return there[there >= 0]
