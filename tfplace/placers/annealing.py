"""Simulated annealing over single units: the textbook method, against which cleverer moves are judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.core.stepcost import Key
from tfplace.local_search.batches import try_all
from tfplace.local_search.devices import compute_devices, single_devices
from tfplace.local_search.penalized_cost import PenalizedCost, begin, limit_for

_ANY_DEVICE = 0.02
"""Part of the moves that may go to a host: seldom useful, but nothing else takes work there."""

_BLOCK = 1024
"""Moves drawn at once, which is quicker than one by one."""


class Annealing(Placer):
    """Moves one unit at a time to another device, from the best single device on.

    A move takes a random unit to a random other accelerator, and now and then to any device it may be on. It is
    accepted if its energy is at most that of the present placement plus `temperature * e` with e drawn from the
    exponential distribution, which is the Metropolis criterion with the draw made first: a step longer than that can be
    given up while it is simulated. The energy is the step's seconds, with a price for memory that is missing,
    which rises while the walk is where it is missing (`PenalizedCost.adapt`). The temperature falls geometrically over
    the budget.

    FlexFlow's search is the same walk at one temperature, over a space that also has data parallelism, restarted from
    other initial placements. If there are at most 2,000 placements, all of them are tried instead.

    Args:
      starts: [U] placements, from the best of which the walk starts; by default everything on each device in turn.
      hot: temperature at the start, in step times of the start divided by the number of units.
      cold: temperature at the end, alike.
    """

    citation = (
        "S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi: Optimization by Simulated Annealing. Science 220, 1983; for "
        "placement as in Z. Jia, M. Zaharia, A. Aiken: Beyond Data and Model Parallelism for Deep Neural Networks "
        "(FlexFlow). MLSys 2019, section 6."
    )
    accepts_starts = True
    supports_workers = True

    def __init__(self, starts: Sequence[IntArray] = (), hot: float = 0.3, cold: float = 0.03) -> None:
        self.starts = tuple(starts)
        self.hot = hot
        self.cold = cold

    def place(self, context: SearchContext) -> IntArray:
        """Searches until the context's budget is used up, nothing can move, or all is tried."""
        starts = self.starts or single_devices(context.problem)
        start, key, price = begin(context, starts)
        if not try_all(context):
            self._walk(context, start.copy(), key, price)
        return start if context.best is None else context.best

    def _walk(self, context: SearchContext, devices: IntArray, key: Key, price: PenalizedCost) -> None:
        """Changes `devices`, which have that key, until the context raises."""
        mean = price.scale_s / context.problem.num_units
        for unit, device, draw in _moves(context.problem, context.rng):
            old = devices[unit]
            if device == old:
                continue
            temperature = mean * self.hot * (self.cold / self.hot) ** context.spent
            most = price(key) + temperature * draw
            devices[unit] = device
            moved = context.key(devices, limit_for(context, most))
            if price(moved) <= most:
                key = moved
            else:
                devices[unit] = old
            price.adapt(fits=not key[0])


def _moves(problem: Problem, rng: np.random.Generator) -> Iterator[tuple[int, int, float]]:
    """Without end: a unit that may move, a device it may be on, and a draw from the exponential distribution."""
    compute = set(compute_devices(problem).tolist())
    allowed = [np.flatnonzero(row).tolist() for row in problem.allowed]
    usual = [[d for d in row if d in compute] or row for row in allowed]
    movable = [u for u, row in enumerate(allowed) if len(row) > 1]
    while movable:
        units = rng.integers(len(movable), size=_BLOCK).tolist()
        kinds, places = rng.random((2, _BLOCK)).tolist()
        draws = rng.standard_exponential(_BLOCK).tolist()
        for index, kind, place, draw in zip(units, kinds, places, draws, strict=True):
            unit = movable[index]
            choice = allowed[unit] if kind < _ANY_DEVICE else usual[unit]
            yield unit, choice[int(place * len(choice))], draw
