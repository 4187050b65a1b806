"""In which order a placement's phases run: the best of those that a program can keep to."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.compilation import XLA
from tfplace.core.kept import kept_latest
from tfplace.core.placement import CRITICAL_PATH, FREE
from tfplace.core.problem import Problem
from tfplace.core.stepcost import StepCost
from tfplace.errors import ApplyError
from tfplace.execution.phases import phase_waits
from tfplace.search.clustered import clustered_cost, is_on_one_device
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import GPIPE, ONE_F_ONE_B, Options
from tfplace.simulation.stretches import Stretches


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


STRETCHED = "stretches"
"""The order of a compiled step whose clusters are cut, so that what they make is sent before all is made."""

_KEPT = 8
"""Placements of a problem whose orders are kept."""

_CUTS = (12, 48)
"""Stretches of a device's seconds that are tried, few and many: more send gradients sooner, and start more clusters."""


def best_order(problem: Problem, op_device: IntArray, options: Options, *, quick: bool = False) -> Ordered:
    """The best order for a placement; in it no op waits for itself.

    A step in slices is tried in the orders of `options.phase_orders` and in that of the critical path. The simulator
    keeps to phases op by op. A program keeps to them by control edges, for which a loop is as one op, so there are a
    few orders which it cannot keep to. A compiled step runs cluster by cluster (`clustered_cost`), whole or cut.

    Args:
      problem: what is placed.
      op_device: [V].
      options: of the simulation.
      quick: whether nothing is tried but to run what is ready.
    """
    return _best_order(problem, op_device.astype(np.int32).tobytes(), options, quick)


@kept_latest(_KEPT)
def _best_order(problem: Problem, devices: bytes, options: Options, quick: bool) -> Ordered:
    """Several ways often come to the same placement, such as data parallelism and what a search from it finds."""
    op_device: IntArray = np.frombuffer(devices, np.int32)
    compiled = problem.compile == XLA
    ran = _compiled if compiled else _op_by_op
    free = ran(problem, op_device, options, FREE)
    assert free is not None  # without phases nothing waits for itself
    if quick or (compiled and is_on_one_device(problem, op_device)):
        return free
    found = [free] if FREE in options.phase_orders else []
    if problem.graph.slices is not None:
        names = [name for name in options.phase_orders if name != FREE] + [CRITICAL_PATH] * (not compiled)
        if _has_a_slice_each(problem, op_device):  # one slice passes a device forward and backward in any of them
            names = [name for name in names if name not in (GPIPE, ONE_F_ONE_B)]
        found += [one for name in names if (one := ran(problem, op_device, options, name)) is not None]
    if compiled:
        found += [one for cuts in _CUTS if (one := _in_stretches(problem, op_device, options, cuts)) is not None]
    return min(found, key=lambda one: one.cost.key, default=free)  # the first of equal ones


def _has_a_slice_each(problem: Problem, op_device: IntArray) -> bool:
    """Whether no device has ops of two slices."""
    slices = problem.graph.slices
    assert slices is not None
    of = (slices.slice_of >= 0) & ~problem.graph.replicable
    pairs = np.unique(np.stack([op_device[of], slices.slice_of[of]]), axis=1)
    return bool(len(np.unique(pairs[0])) == pairs.shape[1])


def _op_by_op(problem: Problem, op_device: IntArray, options: Options, name: str) -> Ordered | None:
    """What a step takes op by op in an order; None if a program cannot keep to it."""
    one = Ordered(*Simulator(problem, replace(options, phase_orders=(name,))).ordered(op_device))
    try:
        phase_waits(problem.graph, op_device, one.phases, problem.topology.device_names)
    except ApplyError:
        return None
    return one


def _compiled(problem: Problem, op_device: IntArray, options: Options, name: str) -> Ordered | None:
    """What a step takes cluster by cluster in an order; None if a program cannot keep to it."""
    order, phases = Simulator(problem, replace(options, phase_orders=(name,))).phases(op_device)
    try:
        return Ordered(clustered_cost(problem, op_device, phases, options), order, phases)
    except ApplyError:
        return None


def _in_stretches(problem: Problem, op_device: IntArray, options: Options, cuts: int) -> Ordered | None:
    """What a compiled step takes in stretches of what each device does in its best order op by op."""
    start_s = Simulator(problem, options).timeline(op_device).start_s
    phases = Stretches(problem.graph, cuts)(op_device, start_s, problem.costs.compute_s)
    try:
        return Ordered(clustered_cost(problem, op_device, phases, options), STRETCHED, phases)
    except ApplyError:
        return None
