"""Local search: simulated annealing that moves parts of every size and shape, most of them off the critical path."""

from __future__ import annotations

from collections.abc import Sequence

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import SearchContext
from tfplace.local_search.annealing import COLD, HOT, Annealing
from tfplace.local_search.batches import try_all
from tfplace.local_search.devices import single_devices
from tfplace.local_search.penalized_cost import begin


class LocalSearch(Placer):
    """Anneals from the best of some starts until its budget is used up.

    Two of three moves begin at a unit or a transfer on the critical path of the schedule, which is as long as the step;
    the others anywhere, or at an edge between two devices. A move takes what is around it: a cluster of the
    hierarchy of `tfplace.group.coarsen`, or a region of that size, from single units to an eighth of the graph, from
    coarse to fine over the budget, with a wide spread; or units of a scope of the model's names, of any depth; or
    producers with their only consumers. See `tfplace.local_search.moves` for the kinds.

    How it anneals, and what departs from the textbook, is told in `tfplace.local_search.annealing`. If there are at
    most 2,000 placements, all of them are tried instead.

    Args:
      starts: [U] placements to start from; by default all of the problem on each device in turn.
      hot: temperature at the start, in step times of the start divided by the number of units: what an average unit
        takes on one device.
      cold: temperature at the end, alike.
    """

    citation = (
        "S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi: Optimization by Simulated Annealing. Science 220, 1983; moves "
        "on the critical path after P. J. M. van Laarhoven, E. H. L. Aarts, J. K. Lenstra: Job Shop Scheduling by "
        "Simulated Annealing. Operations Research 40(1), 1992, section 3; over a hierarchy after C. Walshaw: "
        "Multilevel Refinement for Combinatorial Optimisation Problems. Annals of Operations Research 131, 2004; "
        "borders after C. M. Fiduccia, R. M. Mattheyses: A Linear-Time Heuristic for Improving Network Partitions. DAC "
        "1982."
    )
    accepts_starts = True
    supports_workers = True

    def __init__(self, starts: Sequence[IntArray] = (), hot: float = HOT, cold: float = COLD) -> None:
        self.starts = tuple(starts)
        self.hot = hot
        self.cold = cold

    def place(self, context: SearchContext) -> IntArray:
        """Searches until the context's budget is used up; returns before only if nothing can be moved."""
        start, key, price = begin(context, self.starts or single_devices(context.problem))
        if not try_all(context):
            Annealing(context, start, key, price).run(self.hot, self.cold)
        return start if context.best is None else context.best
