"""m-ETF: earliest task first with memory and serial links."""

from __future__ import annotations

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.schedule.list_scheduling.scheduler import Scheduler
from tfplace.schedule.list_scheduling.variants import Variants, best_plan

_SLOWER = (1.0, 4.0, 16.0, 64.0)
_GROUPS = (("units", 0), ("topological", 1000), ("topological", 300), ("heavy_edge", 100))


class MEtf(Placer):
    """ETF in which a device sends, and receives, one tensor at a time, each once to every device that reads it.

    A device is asked only while it has room for a unit's variables, what its op makes, and what that reads from
    elsewhere. Outputs are freed with their last reader, variables never.

    Departures: channels are those of the topology, which may be shared or half duplex; memory is followed in the order
    of planning; variables are reserved when a unit's first op is planned, temporary memory is not known. A transfer's
    arrival is estimated anew when it comes to be the earliest. The host CPU is a last resort. The paper fuses ops that
    share a consumer or a colocation; here the plan of single ops is the first of up to 20, of which the simulated best
    is returned. The others plan groups of units as single tasks (`tfplace.schedule.list_scheduling.fuse`), or take
    links to be 4, 16 or 64 times slower.
    """

    citation = (
        "B. Jeon, L. Cai, P. Srivastava, J. Jiang, X. Ke, Y. Meng, C. Xie, I. Gupta: Baechi: Fast Device Placement of "
        "Machine Learning Graphs. SoCC 2020, section 3.2."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Plans and evaluates up to 20 times, more if memory is short; the best of these."""
        variants = Variants(context.problem)
        return best_plan(lambda: variants.plans(_plan, _GROUPS, _SLOWER), context.key)


def _plan(scheduler: Scheduler, memory: float) -> IntArray:
    return scheduler.by_start(memory=memory, serial=True).unit_device
