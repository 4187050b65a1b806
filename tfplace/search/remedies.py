"""Ways that do not fit, made to: the cheapest remedies first, alone and together, as they are predicted."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.compilation import NONE
from tfplace.core.placement import Placement
from tfplace.core.plan import PlanRow
from tfplace.core.problem import Problem
from tfplace.rematerialization.stash import Stash
from tfplace.search.clock import Clock
from tfplace.search.on_host import SLOTS, VARIABLES, on_host
from tfplace.simulation.evaluate import Simulator

_MOST_RECOMPUTING = 6
"""Ways in which it is searched for what to compute again, which takes long."""


@dataclass(eq=False)
class Pricing:
    """How a remedied placement becomes a row.

    Attributes:
      less: a placement, and what tells whether to go on -> the same with results computed again, so that it fits, or
        nearly.
      rows: a problem, [U] devices of its units and a way -> rows op by op and, if that fits, compiled.
      limit_s: seconds after which nothing more is tried to be computed again, but for once if nothing fits.
      clock: of these.
      ended: whether something was left out for that.
    """

    less: Callable[[Placement, Callable[[], bool]], Placement]
    rows: Callable[[Problem, IntArray, str], Sequence[PlanRow]]
    limit_s: float = math.inf
    clock: Clock = field(default_factory=Clock)
    ended: bool = False

    def goes_on(self) -> bool:
        """Whether there is time; asked where there is more to try."""
        self.ended = self.ended or self.clock.seconds >= self.limit_s
        return not self.ended


def remedied(rows: Sequence[PlanRow], pricing: Pricing, fits_s: float) -> list[PlanRow]:
    """What becomes of ways that do not fit by computing results again, by slots or variables on the host, or by both.

    A remedy is taken to cost time only, so that of what does not fit, the fastest is looked at first, until it takes as
    long as what fits. Of what is made to fit all is told; of what is not, what comes nearest if nothing fits at all.

    Args:
      rows: ways; those that fit are left alone.
      pricing: makes rows.
      fits_s: seconds of the fastest way that fits so far; infinite if none does.
    """
    count = itertools.count()
    queue = [(row.cost.step_s, next(count), row) for row in rows if not row.cost.feasible and _is_open(row)]
    heapq.heapify(queue)
    found: list[PlanRow] = []
    nearest: list[PlanRow] = []
    recomputed = 0
    while queue:
        step_s, _, row = heapq.heappop(queue)
        if step_s >= fits_s:
            break
        children = _with_host(row, pricing)
        if recomputed < _MOST_RECOMPUTING and _may_recompute(row) and pricing.goes_on():
            recomputed += 1
            children += _recomputing(row, pricing)
        for child in children:
            if child.cost.feasible:
                found.append(child)
                fits_s = min(fits_s, child.cost.step_s)
            else:
                nearest.append(child)
                if _is_open(child):
                    heapq.heappush(queue, (child.cost.step_s, next(count), child))
    return _nearest(rows, nearest, pricing) if np.isinf(fits_s) else found


def _nearest(before: Sequence[PlanRow], made: Sequence[PlanRow], pricing: Pricing) -> list[PlanRow]:
    """What exceeds memory least, unless it was there before."""
    rows = [*before, *made]
    able = [row for row in rows if _is_open(row) and _knows_what_is_kept(row)]
    found = _recomputing(min(able, key=lambda row: row.cost.key), pricing) if able else []
    best = min([*rows, *found], key=lambda row: row.cost.key, default=None)
    return [] if best is None or best in before else [best]


def _is_open(row: PlanRow) -> bool:
    """Whether there is a remedy that a way does not have yet."""
    return row.placement is not None and row.compile == NONE and not row.recomputes and not row.obstacle


def _with_host(row: PlanRow, pricing: Pricing) -> list[PlanRow]:
    """The way with slots, and with variables, on the host."""
    if row.host:
        return []
    assert row.placement is not None
    problem = row.placement.problem
    assert problem is not None
    evaluate = Simulator(problem)
    wanted = (on_host(problem, row.placement.op_device, what, evaluate) for what in (SLOTS, VARIABLES))
    clock = Clock()
    found = [one for units in wanted if units is not None for one in pricing.rows(problem, units, row.way) if one.host]
    took_s = (row.found_s or 0.0) + clock.seconds
    found = [replace(one, found_s=took_s) for one in found]
    return list({one.name: one for one in found}.values())  # where slots are bound to variables, both are the same


def _may_recompute(row: PlanRow) -> bool:
    """Whether no device is over by more than what is kept there for the backward pass and could be computed again."""
    placement = row.placement
    if placement is None or placement.problem is None or not _knows_what_is_kept(row):
        return False
    stash = Stash(placement.problem.graph)
    droppable = np.zeros(len(placement.device_names), np.int64)
    at = placement.op_device
    for v in np.flatnonzero(stash.droppable).tolist():
        for d in {int(at[u]) for u in (v, *stash.readers[v])}:
            droppable[d] += stash.kept_bytes[v]
    missing = placement.cost.peak_bytes - placement.cost.limit_bytes
    return bool((missing <= droppable).all())


def _knows_what_is_kept(row: PlanRow) -> bool:
    """Whether there is a graph in which nothing is computed again yet."""
    problem = None if row.placement is None else row.placement.problem
    return problem is not None and problem.graph.recomputes is None


def _recomputing(row: PlanRow, pricing: Pricing) -> list[PlanRow]:
    """The way with results computed again, if any can be."""
    assert row.placement is not None
    clock = Clock()
    placement = pricing.less(row.placement, pricing.goes_on)
    took_s = (row.found_s or 0.0) + clock.seconds
    if placement.problem is None or placement.problem.graph.recomputes is None:
        return []
    return [replace(row, placement=placement, cost=placement.cost, recomputes=True, found_s=took_s)]
