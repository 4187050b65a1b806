"""HEFT: heterogeneous earliest finish time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.schedule.list_scheduling.tasks import Units
from tfplace.schedule.list_scheduling.variants import PlanWith, Variants, best_plan

_SLOWER = (4.0, 16.0, 64.0)
_GROUPS = (("topological", 300), ("merge", 300), ("topological", 100), ("merge", 100))


class Heft(Placer):
    """List scheduling by upward rank, each op where it finishes earliest, in an idle gap if one is long enough.

    Departures from the paper: the ops of one unit share a device, which the first of them in rank order decides. Means
    are over accelerators, and a host CPU beside them is considered only for what may be nowhere else, or if no
    accelerator has memory left. A device is considered while it has room for what it would hold in rank order
    (`tfplace.schedule.list_scheduling.kernel`). Since that is an estimate, plans are made again with less memory as
    long as none fits when simulated.

    The paper's plan is the first of up to 20, of which the simulated best is returned. The others take links to be 4,
    16 or 64 times slower, or plan groups of units, which share a device: with the paper's rule; or with transfers that
    wait for one another and the first op deciding by when the whole group would finish. Placements that spread less are
    often better where transfers wait for one another, which the paper does not know.
    """

    citation = (
        "H. Topcuoglu, S. Hariri, M.-Y. Wu: Performance-effective and low-complexity task scheduling for heterogeneous "
        "computing. IEEE Transactions on Parallel and Distributed Systems 13(3), 2002, section 4.1."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Plans and evaluates up to 20 times, more if memory is short; the best of these."""
        variants = Variants(context.problem)
        return best_plan(lambda: _plans(variants), context.key)


def _plans(variants: Variants) -> Iterator[PlanWith]:
    for slower in (1.0, *_SLOWER):
        yield partial(_plan, variants.ops(slower), None, False)
    for (grouper, count), whole, slower in product(_GROUPS, (False, True), _SLOWER[:2]):
        if variants.coarser(count):
            yield partial(_plan, variants.ops(slower), variants.units(grouper, count), whole)


def _plan(scheduler: Scheduler, units: Units | None, whole: bool, memory: float) -> IntArray:
    return scheduler.by_order(units, whole=whole, serial=whole, memory=memory).unit_device
