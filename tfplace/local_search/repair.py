"""Placements that do not fit, changed as little as list scheduling needs to find room for everything."""

from __future__ import annotations

from functools import partial

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext, best_of
from tfplace.group.scope import scope
from tfplace.local_search.grouped_context import GroupedContext, in_groups
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.schedule.list_scheduling.tasks import LAST_RESORT, NEVER, PREFERRED, Units
from tfplace.schedule.list_scheduling.variants import best_plan

_LAYERS = 16
"""Layers that are planned as a whole: so few that a device is left with room for their gradients."""

_SLOWER = 16.0
"""Transfers are planned to take so many times as long: plans at their real speed scatter what they move."""


def make_room(context: SearchContext, groups: int) -> None:
    """If nothing that was evaluated fits, repairs what comes nearest: in groups, in layers and unit by unit.

    A layer's gradients need what it made, and stay with it, so that a device is not filled by the forward pass alone.

    Args:
      context: of a search that has evaluated something.
      groups: how many.
    """
    if context.best_key is None or context.best_key[0] == 0:
        return
    nearest = best_of(context)
    for part in (in_groups(context, groups), GroupedContext(context, scope(context.problem, _LAYERS))):
        repair(part, *part.known((nearest,)))
    repair(context, nearest)


def repair(context: SearchContext, unit_device: IntArray) -> IntArray:
    """[U] the units where they are, and those for which there is no room there where they would finish earliest.

    Ops are planned by falling upward rank, and memory is followed in that order, as for `m_etf`; either with the op at
    hand in mind, or with the whole unit and with slow transfers. What is simulated may need more memory than planned,
    so plans are made with less and less until one fits there too; the best of these few.

    Args:
      context: evaluates.
      unit_device: [U] devices where the units may be.
    """
    problem, scheduler = context.problem, Scheduler.of(context.problem)
    tier = np.where(problem.allowed, LAST_RESORT, NEVER).astype(scheduler.units.tier.dtype)
    tier[np.arange(problem.num_units), unit_device] = PREFERRED
    units = scheduler.units._replace(tier=tier)
    plans = (partial(_plan, scheduler, units, False), partial(_plan, scheduler.slower(_SLOWER), units, True))
    return best_plan(lambda: iter(plans), context.key)


def _plan(scheduler: Scheduler, units: Units, whole: bool, memory: float) -> IntArray:
    return scheduler.by_order(units, whole=whole, memory=memory).unit_device
