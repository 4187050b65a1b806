"""The portfolio of `auto` on many workers."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError, Left
from tfplace.placers.auto import (
    CONSTRUCTION,
    LEAST,
    PIPELINE_SEARCH,
    SCOUTING,
    SCOUTS,
    SEARCH,
    SECOND,
    SURVIVORS,
    Found,
    Portfolio,
    member,
    shown_key,
)
from tfplace.registry import PLACERS
from tfplace.search.chains import Chain, Chains
from tfplace.search.parts import Part
from tfplace.search.team import Team

_PATIENCE_S = 0.5
"""For members that are not done in time, as list schedulers on large graphs; they are counted whenever they are."""

Rounds = Callable[[Team, Placer, Sequence[IntArray], str], None]


class PortfolioOnWorkers(Portfolio):
    """One run of `auto` whose parts are done by workers, side by side.

    1. The members, as many at once as there are workers, for the same part of the budget as in `Auto`.
    2. Scouts: at least three, and at least one for each worker, from the members in the order of their ranks and from
       one device.
    3. From the two best of these one search for each worker, in turns; then annealings on all workers from the best of
       all, which exchange where they are (`Chains`), with what is left.

    Args:
      team: searches.
      rounds: searches for a pipeline, which is not annealed in chains.
      learned: see `Auto`.
    """

    def __init__(self, team: Team, rounds: Rounds, *, learned: bool = True) -> None:
        super().__init__(team.context, learned)
        self._team = team
        self._rounds = rounds
        self._single: Found | None = None
        self._each_s = 0.0

    def place(self, starts: Sequence[IntArray]) -> None:
        """Until the budget is spent or the bound is reached.

        Args:
          starts: [U] placements known beforehand.
        """
        kept = self.context.load_checkpoint()
        if kept is None:
            self.construct(starts)
            if not self.settled():
                self.improve()
            return
        self.log.append("resumed the last search of the run directory")
        if self.pipelined:
            self._search_loads("the best")
        else:
            Chains(self._team).resume(kept, f"{SEARCH} from the best")

    def construct(self, starts: Sequence[IntArray]) -> None:
        """One device, the given placements, and the members."""
        begun = time.perf_counter()
        self._single = self.alone()
        self._each_s = time.perf_counter() - begun
        for i, devices in enumerate(starts):
            self.found.append(Found(f"given {i + 1}", self.context.key(devices), devices, f"given {i + 1}"))
        names = self.members()
        makes = [functools.partial(_member_part, name) for name in names]
        for k, done in self._team.together(CONSTRUCTION, makes, whole=True, patience_s=_PATIENCE_S):
            if done.missing:
                self.missing.append(names[k])
            elif done.failed:
                self.log.append(f"{names[k]} failed: {done.failed}")
            elif done.devices is not None and done.key is not None:
                self.found.append(Found(names[k], done.key, done.devices, names[k]))
            if self.settled():
                return

    def improve(self) -> None:
        """Scouts, what goes on from the best of them, and the best of all until the budget is spent."""
        if self.pipelined:
            start = self.best_found()
            self._search_loads(start.origin)
            self._note_last(f"{PIPELINE_SEARCH} from {start.origin}", start.origin)
            return
        scouts = sorted(self._scouted(), key=lambda f: f.key)[:SURVIVORS]
        if scouts and not self.settled():
            until = self.context.spent + (1 - self.context.spent) * SECOND
            starts = [*itertools.islice(itertools.cycle(scouts), self._team.width)]
            self._searched(until, starts, "after")
        if not self.settled() and self.context.spent < 1:
            start = self.best_found() if scouts else self.start(0, self._one_device)
            name = f"{SEARCH} from {start.name}"
            Chains(self._team).run([Chain.begin(name, start.devices, start.key)])
            self._note_last(name, start.origin)

    def _search_loads(self, name: str) -> None:
        starts = [] if self.context.best is None else [self.context.best]
        self._rounds(self._team, PLACERS[PIPELINE_SEARCH](), starts, f"{PIPELINE_SEARCH} from {name}")

    def _note_last(self, name: str, origin: str) -> None:
        """What the last search, on all workers, came to."""
        end = self.best_found()
        self.searched.append(Found(name, end.key, end.devices, origin))
        self.log.append(f"{name}, on all workers: {shown_key(end.key)}")

    def best_found(self) -> Found:
        """The best placement of all so far."""
        context = self.context
        if context.best is None or context.best_key is None:
            raise BudgetSpentError
        origin = min([self._one_device, *self.found, *self.searched], key=lambda f: f.key).origin
        return Found("the best", context.best_key, context.best, origin)

    @property
    def _one_device(self) -> Found:
        if self._single is None:
            raise BudgetSpentError
        return self._single

    def _scouted(self) -> list[Found]:
        """What scouts find: as many as there are turns for, if each can do something in its time."""
        context, width = self.context, self._team.width
        count = math.ceil(max(width, len(SCOUTS)) / width) * width
        until = context.spent + (1 - context.spent) * SCOUTING
        seconds, evaluations = context.left
        if seconds is not None:
            evaluations = int(seconds * width / max(self._each_s, 1e-9))
        count = min(count, int(SCOUTING * (evaluations or 0) / LEAST))
        if count < 2:  # a lone one would have none to be compared with
            return []
        ranks = [SCOUTS[k] if k < len(SCOUTS) else (k - 1) % max(len(self.found), 1) for k in range(count)]
        return self._searched(until, [self.start(rank, self._one_device) for rank in ranks], "from")

    def _searched(self, until: float, starts: Sequence[Found], word: str) -> list[Found]:
        """What searches from each of the starts find."""
        spent = self.context.spent
        chains = [Chain.begin(f"{SEARCH} {word} {start.name}", start.devices, start.key) for start in starts]
        ends = Chains(self._team, until, exchange=False).run(chains)
        found = [
            Found(chain.name, chain.best_key, chain.best, start.origin)
            for chain, start in zip(ends, starts, strict=True)
        ]
        best = min(found, key=lambda f: f.key)
        part = f"{100 * (self.context.spent - spent):.0f} % of the budget"
        searches = "1 search" if len(found) == 1 else f"the best of {len(found)} searches"
        self.log.append(f"{best.name}, {searches}: {shown_key(best.key)}, {part}")
        self.searched += found
        return found


def _member_part(name: str, left: Left, seed: int) -> Part:
    return Part(name, left, seed, placer=member(name))
