"""A search and the workers that search for it: who gets which part of the budget, and what counts of the answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from tfplace.core.search_context import Left, SearchContext
from tfplace.search.crew import Crew
from tfplace.search.parts import Done, Part

_EACH = 2500
"""Evaluations of a budget for each part that it is divided into."""

_MOST = 64
"""Parts that a budget in evaluations is divided into at most."""

_LEAST_S = 1e-3
_RESTART_S = 2.0
"""A worker that is started anew is waited for so long, and for as long again as its part was to take."""

_JUDGED = 2**62

MakePart = Callable[[Left, int], Part]
"""What makes a part of its budget and its seed."""


class Team:
    """A context, and workers that search for it.

    A budget in seconds has each worker search all the time. One in evaluations is divided into as many parts as suit
    it, however many workers there are: what they find does not depend on that.

    What a worker finds is checked, and evaluated here once before it counts as the best. All its evaluations count.

    Args:
      context: of the whole search.
      crew: the workers.
    """

    def __init__(self, context: SearchContext, crew: Crew) -> None:
        self.context = context
        self._crew = crew
        self._judge = context.apart(Left(None, _JUDGED), 0)
        evaluations = context.left.evaluations
        self._parts = None if evaluations is None else min(max(evaluations // _EACH, 1), _MOST)

    @property
    def by_clock(self) -> bool:
        """Whether the budget is in seconds."""
        return self._parts is None

    @property
    def width(self) -> int:
        """How many parts are searched side by side."""
        return self._crew.count if self._parts is None else self._parts

    def together(
        self, until: float, makes: Sequence[MakePart], *, whole: bool = False, patience_s: float | None = None
    ) -> Iterator[tuple[int, Done]]:
        """What the parts come to, by their numbers; those that do not come back in time are left out.

        Args:
          until: part of the context's budget that is spent when they are done.
          makes: one for each.
          whole: whether each may take all the time until then, and not only its turn.
          patience_s: for how long those are waited for that are not done by then; by default for as long as they were
            to take, as a worker that is lost does its part again.

        Raises:
          PlacementError: what a worker found are no devices that the units may be on.
          WorkersError: see `Crew.answers`.
        """
        number: dict[Part, int] = {}
        for part, done in self._crew.answers(
            self._numbered(until, makes, number, whole=whole),
            until_s=self._deadline_s(until, len(makes), patience_s),
            waiting=lambda: self.context.count(0),
        ):
            self._take(part, done)
            if part in number:
                yield number[part], done

    def _numbered(
        self, until: float, makes: Sequence[MakePart], number: dict[Part, int], *, whole: bool
    ) -> Iterable[Part]:
        lefts = self._seconds(until, len(makes), whole) if self.by_clock else self._evaluations(until, len(makes))
        parts = self._made(lefts, makes, number)
        return parts if self.by_clock else [*parts]  # before anything has been counted

    def _made(self, lefts: Iterable[Left], makes: Sequence[MakePart], number: dict[Part, int]) -> Iterator[Part]:
        for k, (left, make) in enumerate(zip(lefts, makes, strict=False)):
            part = make(left, int(self.context.rng.integers(2**62)))
            number[part] = k
            yield part

    def _seconds(self, until: float, count: int, whole: bool) -> Iterator[Left]:
        """What is left for each when a worker is free for it; ends when nothing is."""
        begun, width = self.context.spent, self.width
        turns = 1 if whole else math.ceil(count / width)
        for k in range(count):
            turn = 1 if whole else k // width + 1
            seconds = self._seconds_until(begun + (until - begun) * turn / turns)
            if k and seconds <= 0:
                return
            yield Left(max(seconds, _LEAST_S), None)

    def _evaluations(self, until: float, count: int) -> list[Left]:
        """An equal part of the evaluations for each, and fewer parts if there are too few."""
        left, spent = self.context.left.evaluations or 0, self.context.spent
        all_of_them = left if until >= 1 else int(left * (until - spent) / (1 - spent)) if spent < 1 else 0
        count = min(count, all_of_them)
        return [Left(None, all_of_them // count)] * count if count else []

    def _seconds_until(self, until: float) -> float:
        left, spent = self.context.left.seconds or 0.0, self.context.spent
        return left * (until - spent) / (1 - spent) if spent < 1 else 0.0

    def _deadline_s(self, until: float, count: int, patience_s: float | None) -> float | None:
        if not self.by_clock:
            return None
        seconds = max(self._seconds_until(until), 0.0)
        if patience_s is None:
            patience_s = _RESTART_S + seconds / math.ceil(count / self.width)
        return time.monotonic() + seconds + patience_s

    def _take(self, part: Part, done: Done) -> None:
        """Counts what a worker has done, and keeps what it has found if that is the best.

        Raises:
          PlacementError: no devices that the units may be on.
        """
        context = self.context
        if done.devices is None or done.key is None:
            context.count(done.evaluations)
            return
        devices = context.problem.check(done.devices)
        if context.best_key is not None and done.key >= context.best_key:
            context.count(done.evaluations)
            return
        over, step_s = self._judge.key(devices)
        context.count(done.evaluations - 1)
        context.share(1.0, part.name).tell(devices[None], np.array([over]), np.array([step_s]))
