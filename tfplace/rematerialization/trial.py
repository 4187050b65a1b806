"""What a step would take if some of its ops were computed again; simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.grouping import Grouping
from tfplace.core.placement import FREE
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import PHASE_ORDERS, Options
from tfplace.transforms.recompute import recompute

CPU_OPS_AT_ONCE = 2
"""TensorFlow runs ops on a CPU while others still run; see `tfplace.report.step_memory`."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A step in which some ops are computed again, on the devices of those that they are copies of.

    Attributes:
      graph: of the step.
      of: [V] the op of the whole step that each op is, or is a copy of.
      cost: of a step.
      start_s: when each op of the whole step starts, [ops of the whole step].
      finish_s: when it ends.
      peak_s: [D] when each device holds most.
    """

    graph: OpGraph
    of: IntArray
    cost: StepCost
    start_s: FloatArray
    finish_s: FloatArray
    peak_s: FloatArray


class Trials:
    """Simulates one placed step with several choices of what to compute again.

    Args:
      problem: the step, in which nothing is computed again.
      op_device: [V] device of each op.
      order: of phases, by name; see `Options.phase_orders`. In one of another name there are none.
    """

    def __init__(self, problem: Problem, op_device: IntArray, order: str = FREE) -> None:
        self.problem, self.op_device = problem, op_device
        self.order = order if order in PHASE_ORDERS else FREE
        self.options = replace(executor_options(problem, op_device), phase_orders=(self.order,))

    def __call__(self, segments: Sequence[Iterable[int]]) -> Trial:
        """The step in which some ops are computed again, by index; see `recompute`."""
        graph = recompute(self.problem.graph, segments)
        of = sources(self.problem.graph, graph)
        problem = problem_of_copies(self.problem, graph, of)
        simulator = Simulator(problem, self.options)
        devices = self.op_device[of]
        cost, timeline = simulator.devices(devices), simulator.timeline(devices)
        peak_s = np.zeros(problem.num_devices)
        for d in range(problem.num_devices):
            own = np.flatnonzero(timeline.memory_device == d)
            if len(own):
                peak_s[d] = timeline.memory_s[own[np.argmax(timeline.memory_bytes[own])]]
        place = _own(graph)[np.argsort(of[_own(graph)])]
        return Trial(graph, of, cost, timeline.start_s[place], timeline.finish_s[place], peak_s)


def executor_options(problem: Problem, op_device: IntArray) -> Options:
    """What predicts the real peaks of steps with copies best: ops in the order of TensorFlow's executor.

    In the order in which ops become ready, copies seem to save more than they do: gradients of weights hold what they
    read until they run.
    """
    types = {problem.topology.devices[d].type for d in np.unique(op_device[~problem.graph.replicable]).tolist()}
    return Options(order="inline", parallel=CPU_OPS_AT_ONCE if types == {"CPU"} else 1)


def sources(whole: OpGraph, graph: OpGraph) -> IntArray:
    """[V] the op of the whole step that each op is, or is a copy of."""
    again = np.full(graph.num_ops, -1) if graph.recomputes is None else graph.recomputes
    names = (graph.op_names[v if u < 0 else u] for v, u in enumerate(again.tolist()))
    return np.array([whole.index[name] for name in names], np.int32)


def problem_of_copies(problem: Problem, graph: OpGraph, of: IntArray) -> Problem:
    """The problem of a step in which ops are computed again: copies cost what their originals do, in their units.

    Args:
      problem: of the whole step.
      graph: the step in which ops are computed again.
      of: [V] the op of the whole step that each op is, or is a copy of.
    """
    place = np.empty(problem.graph.num_ops, np.int32)
    own = _own(graph)
    place[of[own]] = own
    follows = np.arange(graph.num_ops, dtype=np.int32)
    follows[own] = place[problem.follows[of[own]]]
    unit_of = problem.grouping.unit_of[of]
    first = np.unique(unit_of[unit_of >= 0], return_index=True)[1]
    units = np.argsort(first)  # in the order of their first ops
    number = np.empty(problem.num_units + 1, np.int32)
    number[units], number[-1] = np.arange(len(units)), -1
    return replace(
        problem,
        graph=graph,
        costs=_of_copies(problem.costs, of),
        other_costs=None if problem.other_costs is None else _of_copies(problem.other_costs, of),
        grouping=Grouping(number[unit_of], problem.num_units),
        allowed=problem.allowed[units],
        follows=follows,
    )


def _own(graph: OpGraph) -> IntArray:
    """Ops that are no copies."""
    own = np.arange(graph.num_ops) if graph.recomputes is None else np.flatnonzero(graph.recomputes < 0)
    return own.astype(np.int32)


def _of_copies(costs: CostTable, of: IntArray) -> CostTable:
    return CostTable(costs.compute_s[of], tuple(costs.provenance[v] for v in of.tolist()))
