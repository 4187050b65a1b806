"""m-SCT: small communication times, with memory and serial links."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.schedule.list_scheduling.favorite_child import favourites, no_favourites, pairs_of
from tfplace.schedule.list_scheduling.scheduler import Favourites, Scheduler
from tfplace.schedule.list_scheduling.variants import PlanWith, Variants, best_plan

_MOST_PAIRS = 10_000
"""Of tasks and children in a linear program, which then takes about three seconds."""

_GROUPS = (("units", 0), ("topological", 1000), ("topological", 300), ("heavy_edge", 100))
_SLOWER = (1.0, 16.0)


class MSct(Placer):
    """m-ETF in which a device waits for the favorite child of the op it has run.

    A linear program tells which child each op should have right after it
    (`tfplace.schedule.list_scheduling.favorite_child`). Having run an op, its device is awake for that child until the
    child is planned, could start earlier elsewhere, or could have the op's output anywhere. Meanwhile it runs only
    urgent ops, those whose inputs could be on every device.

    Departures beside those of m-ETF: favorites are chosen between units, or between groups of units
    (`tfplace.schedule.list_scheduling.fuse`) where there are more than 10,000 pairs of unit and child, since the
    program of single ops takes too long and their units have to stay together anyway, and none where all groupings have
    more. Of a few groupings, planned with links as they are or 16 times slower, the simulated best is returned.
    """

    citation = (
        "B. Jeon, L. Cai, P. Srivastava, J. Jiang, X. Ke, Y. Meng, C. Xie, I. Gupta: Baechi: Fast Device Placement of "
        "Machine Learning Graphs. SoCC 2020, section 3.3; after C. Hanen, A. Munier: An approximation algorithm for "
        "scheduling dependent tasks on m processors with small communication delays. ETFA 1995."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Plans and evaluates up to 8 times, more if memory is short; the best of these."""
        variants = Variants(context.problem)
        chosen: dict[tuple[str, int], Favourites] = {}
        return best_plan(lambda: _plans(variants, chosen), context.key)


def _plans(variants: Variants, chosen: dict[tuple[str, int], Favourites]) -> Iterator[PlanWith]:
    for grouper, count in _GROUPS:
        groups = variants.groups(grouper, count)
        if not variants.coarser(count):
            continue
        if (grouper, count) not in chosen:
            if len(pairs_of(groups.tasks)[0]) > _MOST_PAIRS:
                continue
            chosen[grouper, count] = favourites(groups.tasks)
        for slower in _SLOWER:
            yield partial(_plan, variants.groups(grouper, count, slower), chosen[grouper, count])
    if not chosen:
        groups = variants.groups(*_GROUPS[-1])
        yield partial(_plan, groups, no_favourites(groups.tasks))


def _plan(scheduler: Scheduler, children: Favourites, memory: float) -> IntArray:
    return scheduler.by_start(favourites=children, serial=True, memory=memory).unit_device
