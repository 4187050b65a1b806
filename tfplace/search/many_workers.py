"""One search on many workers: a portfolio, annealings that exchange, or independent searches from the best."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import Left, SearchContext, best_of
from tfplace.local_search.batches import try_all
from tfplace.local_search.devices import single_devices
from tfplace.local_search.penalized_cost import best_start
from tfplace.placers.auto import Auto
from tfplace.placers.local_search import LocalSearch
from tfplace.search.chains import Chain, Chains
from tfplace.search.crew import Crew
from tfplace.search.parts import Part
from tfplace.search.portfolio import PortfolioOnWorkers
from tfplace.search.team import Team

_ROUNDS = 4
_ROUND_S = 60.0
"""Searches that cannot go on where they ended begin anew so often at least, and so often that none is longer."""


class OnWorkers(Placer):
    """A placer that searches on all workers at once.

    - `auto`: its members, its scouts and what goes on from the best of these run side by side, and its last search on
      all workers; see `tfplace.search.portfolio`.
    - `local_search`: one annealing on each worker, which exchange where they are; see `tfplace.search.chains`.
    - Other searches: one on each worker, with a seed of its own, in rounds. After each, every second one goes on from
      the best placement of all, if the placer supports warm starts; the others begin as the first ones did.

    A budget in seconds is that of all workers together, which search all the time. One in evaluations is divided into
    parts that do not depend on the workers, so equal seeds give equal answers on any number of them, though others than
    without workers.

    Args:
      placer: one that `supports_workers`.

    Attributes:
      crew: workers that know the problem; to be set before it places.
    """

    accepts_starts = True
    crew: Crew

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self.starts = placer.starts

    def place(self, context: SearchContext) -> IntArray:
        """Searches until the budget is used up, unless all placements have been tried or the bound is reached.

        Raises:
          PlacementError: a worker found what is no placement.
          WorkersError: workers do not come back.
        """
        self.notes = ()
        if try_all(context):
            return best_of(context)
        team = Team(context, self.crew)
        if isinstance(self._placer, Auto):
            self._portfolio(team, self._placer.with_learned)
        elif isinstance(self._placer, LocalSearch):
            self._chains(team)
        else:
            searched_in_rounds(team, self._placer, self.starts, type(self._placer).__name__)
        return best_of(context)

    def _portfolio(self, team: Team, learned: bool) -> None:
        run = PortfolioOnWorkers(team, searched_in_rounds, learned=learned)
        try:
            run.place(self.starts)
        finally:
            self.notes = run.notes()

    def _chains(self, team: Team) -> None:
        context, name = team.context, "local_search"
        kept = context.load_checkpoint()
        if kept is not None:
            Chains(team).resume(kept, name)
        else:
            start = best_start(context, self.starts or single_devices(context.problem))
            Chains(team).run([Chain.begin(name, *start)])


def searched_in_rounds(team: Team, placer: Placer, starts: Sequence[IntArray], name: str) -> None:
    """Searches of a placer on all workers until the budget is used up; see `OnWorkers`.

    Args:
      team: searches.
      placer: what does.
      starts: [U] from which it does, if it supports warm starts.
      name: under which what is found is logged.
    """
    context = team.context
    kept = context.load_checkpoint()
    first, rounds = (0, _how_many(context.left)) if kept is None else (int(kept["round"]), int(kept["rounds"]))
    begun = context.spent if kept is None else float(kept["begun"])
    for n in range(first, rounds):
        from_best = [] if context.best is None or not n else [context.best]
        makes = [
            functools.partial(_part, placer, starts if k % 2 else from_best or starts, name) for k in range(team.width)
        ]
        for _ in team.together(begun + (1 - begun) * (n + 1) / rounds, makes):
            pass
        context.save_checkpoint(functools.partial(_state, n + 1, rounds, begun))
        if context.spent >= 1.0:
            break


def _state(done: int, rounds: int, begun: float) -> dict[str, NDArray[Any]]:
    return {"round": np.asarray(done), "rounds": np.asarray(rounds), "begun": np.asarray(begun)}


def _how_many(left: Left) -> int:
    return _ROUNDS if left.seconds is None else max(_ROUNDS, math.ceil(left.seconds / _ROUND_S))


def _part(placer: Placer, starts: Sequence[IntArray], name: str, left: Left, seed: int) -> Part:
    one = copy.copy(placer)
    one.starts = tuple(starts) if one.accepts_starts else ()
    return Part(name, left, seed, placer=one)
