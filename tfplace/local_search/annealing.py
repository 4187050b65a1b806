"""Simulated annealing over moves of every size and shape, from one placement until a context's budget is used up."""

from __future__ import annotations

import math

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.search_context import SearchContext
from tfplace.core.stepcost import Key
from tfplace.local_search.move_selector import MoveSelector
from tfplace.local_search.moves import Move, Moves
from tfplace.local_search.penalized_cost import PenalizedCost, limit_for

HOT, COLD = 5.0, 0.25
"""Temperature at first and in the end, in step times of the start divided by the number of units: what an average unit
takes on one device."""

_TINY_S = 1e-30
_AHEAD = 8
_SMALL_PART = 0.01
_CYCLES = ((0.6, 1.0), (1.0, 0.3))
"""Until which part of the budget each cycle lasts, and how hot it begins compared with the first."""

SECOND_CYCLE = _CYCLES[0][0]
"""When the second begins, from the best placement so far."""


def temperature(spent: float) -> float:
    """How hot a run by default is when such a part of its budget is spent, in the unit of `HOT`."""
    begin = 0.0
    for until, heat in _CYCLES:
        if spent < until:
            hot = HOT * heat
            return float(hot * (COLD / hot) ** ((spent - begin) / (until - begin)))
        begin = until
    return COLD


class Annealing:
    """One run from one placement.

    Slower placements are accepted with the Metropolis probability, at a temperature that falls geometrically over three
    fifths of the budget, and once more, from less heat and the best placement so far, over the rest. Placements that do
    not fit the memory may be passed through, at a price that rises while the search is among them
    (`PenalizedCost.adapt`).

    Departures from the textbook, for speed: up to eight moves from the present placement are evaluated at once, on all
    processors. Those that are accepted are made together, if the placement in which all are made is accepted after the
    best of them, else that one alone. Their thresholds of acceptance are drawn beforehand, so that an evaluation can be
    given up beyond. What is decided does not depend on the number of processors.

    Args:
      context: evaluates.
      devices: [U] where the run starts.
      key: what that costs.
      price: makes one number of a placement's key.
      selector: which of the moves drawn are tried; by default all.
    """

    def __init__(
        self,
        context: SearchContext,
        devices: IntArray,
        key: Key,
        price: PenalizedCost,
        selector: MoveSelector | None = None,
    ) -> None:
        self.context = context
        self.devices, self.key = devices.copy(), key
        self.price = price
        self.moves = Moves(context, selector)
        self.ahead = 1

    @property
    def energy(self) -> float:
        """The price of the present placement."""
        return self.price(self.key)

    def run(self, hot: float = HOT, cold: float = COLD) -> None:
        """Anneals until the context raises, or nothing has changed in many draws."""
        begin = 0.0
        for until, heat in _CYCLES:
            if begin and self.context.best is not None and self.context.best_key is not None:
                self.devices, self.key = self.context.best.copy(), self.context.best_key
            self._cycle(begin, until, hot * heat, cold)
            begin = until

    def _cycle(self, begin: float, until: float, hot: float, cold: float) -> None:
        """One fall of the temperature while the part of the budget spent is between two numbers."""
        mean = self.price.scale_s / len(self.devices)
        while (spent := self.context.spent) < until and (moves := self.moves.draw(self.devices, self.ahead)):
            self.moves.done = (spent - begin) / (until - begin)
            self._step(moves, max(mean * hot * (cold / hot) ** self.moves.done, _TINY_S))
            self.price.adapt(fits=not self.key[0])
            # one by one where evaluations are slow or few: nothing is gained there by looking ahead
            each = max(self.context.spent - spent, 0.0) / len(moves)
            self.ahead = min(max(int(_SMALL_PART / max(each, _TINY_S)), 1), _AHEAD)

    def _step(self, moves: list[Move], temperature: float) -> None:
        """Evaluates the moves, each from the present placement, and makes all or the best that are accepted."""
        rows = np.repeat(self.devices[None], len(moves), axis=0)
        for row, move in zip(rows, moves, strict=True):
            row[move.units] = move.devices
        thresholds = self.energy - temperature * np.log(1.0 - self.context.rng.random(len(moves)))
        limit_s = limit_for(self.context, float(thresholds.max()))
        over, step_s = self.context.keys(rows, limit_s)
        energies = self.price.rows(over, step_s)
        self.moves.tell(energies, self.energy)
        passed = np.flatnonzero(energies <= thresholds[: len(energies)]).tolist()
        if not passed:
            return
        if len(passed) > 1 and self._make_all([moves[i] for i in passed], float(energies[passed].min()), temperature):
            return
        best = min(passed, key=energies.__getitem__)
        self.devices, self.key = rows[best], (int(over[best]), float(step_s[best]))

    def _make_all(self, moves: list[Move], energy: float, temperature: float) -> bool:
        """Makes moves together if the outcome is accepted after a placement of `energy`; whether it was."""
        row = self.devices.copy()
        for move in moves:
            row[move.units] = move.devices
        threshold = energy - temperature * math.log(1.0 - self.context.rng.random())
        key = self.context.key(row, limit_for(self.context, threshold))
        accepted = self.price(key) <= threshold
        if accepted:
            self.devices, self.key = row, key
        return accepted
