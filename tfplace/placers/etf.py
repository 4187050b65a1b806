"""ETF: earliest task first."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.schedule.list_scheduling.variants import Variants, best_plan

_SLOWER = (1.0, 4.0, 16.0, 64.0)
_GROUPS = (("topological", 1000), ("topological", 300), ("heavy_edge", 100))


class Etf(Placer):
    """Of all ready ops and devices, always the pair with the earliest start; ties go to the op of higher upward rank.

    Transfers do not wait for one another, as in the paper, and op seconds do not matter to the choice. Departures: the
    ops of one unit share a device; the host CPU is a last resort; a device is asked only while it has room. The paper
    breaks ties by any static priority.

    The paper's plan is the first of up to 16, of which the simulated best is returned. The others take links to be 4,
    16 or 64 times slower, or plan groups of units as single tasks (`tfplace.schedule.list_scheduling.fuse`).
    """

    citation = (
        "J.-J. Hwang, Y.-C. Chow, F. D. Anger, C.-Y. Lee: Scheduling precedence graphs in systems with interprocessor "
        "communication times. SIAM Journal on Computing 18(2), 1989, section 3."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Plans and evaluates up to 16 times, more if memory is short; the best of these."""
        variants = Variants(context.problem)
        return best_plan(lambda: variants.plans(_plan, _GROUPS, _SLOWER), context.key)


def _plan(scheduler: Scheduler, memory: float) -> IntArray:
    return scheduler.by_start(memory=memory).unit_device
