"""In which order a placement's phases run: the best of those that a program can keep to."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tfplace.core.arrays import IntArray
from tfplace.core.compilation import NONE
from tfplace.core.placement import CRITICAL_PATH, FREE
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.errors import ApplyError
from tfplace.execution.phases import phase_waits
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import Options


class Ordered(NamedTuple):
    """What a placement costs in an order of phases.

    Attributes:
      cost: simulated.
      order: its name.
      phases: [V], see `Placement`.
    """

    cost: StepCost
    order: str
    phases: IntArray | None


def best_order(problem: Problem, op_device: IntArray, options: Options) -> Ordered:
    """The best of the orders in `options.phase_orders`, or that of the critical path; in it no op waits for itself.

    The simulator keeps to phases op by op. A program keeps to them by control edges, for which a loop is as one op, so
    there are a few orders which it cannot keep to. A compiled one keeps to no order of single ops.

    Args:
      problem: what is placed.
      op_device: [V].
      options: of the simulation.
    """
    by_path = (CRITICAL_PATH,) if problem.compile == NONE else ()
    tried = dict.fromkeys((*options.phase_orders, *by_path))  # the first of equal ones is taken
    found = {
        name: Ordered(*Simulator(problem, replace(options, phase_orders=(name,))).ordered(op_device))
        for name in {FREE: None} | tried
    }
    ranked = sorted((found[name] for name in tried), key=lambda one: one.cost.key)
    for one in ranked:
        try:
            phase_waits(problem.graph, op_device, one.phases, problem.topology.device_names)
        except ApplyError:
            continue
        return one
    return found[FREE]
