"""A search, or a share of one, as placers see it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.critical_path import CriticalPath
from tfplace.core.engine import Controllers
from tfplace.core.evaluator import Evaluator
from tfplace.core.problem import Problem
from tfplace.core.search_context import BudgetSpentError, Left, SearchContext
from tfplace.core.stepcost import SIMULATED, Key
from tfplace.search.budget import Budget
from tfplace.search.search_state import SearchState
from tfplace.simulation.options import DEFAULT

_ENDLESS = Budget(evaluations=2**62)


class BudgetedContext(SearchContext):
    """The context of a whole search, or a share of one.

    Args:
      search: what all contexts of it share.
      until: position of the search at which this share's budget is used up.
      stage: logged with its improvements.
      parents: contexts whose `best` takes in what this one finds.
      most: evaluations that it has at most.
      span: see `SearchContext.apart`.
    """

    def __init__(
        self,
        search: SearchState,
        until: float,
        stage: str,
        parents: Sequence[BudgetedContext] = (),
        most: int | None = None,
        *,
        span: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self._search = search
        self._from = search.position()
        self._until = until
        self._first = search.evaluations
        self._most = most
        self._span = span
        self.stage = stage
        self._line = (self, *parents)
        self.best: IntArray | None = None
        self.best_key: Key | None = None

    @property
    def problem(self) -> Problem:
        """What is placed, without devices on which a unit never fits."""
        return self._search.fitting

    @property
    def rng(self) -> np.random.Generator:
        """The search's generator."""
        return self._search.rng

    @property
    def evaluations(self) -> int:
        """Of the whole search."""
        return self._search.evaluations

    @property
    def spent(self) -> float:
        """Fraction of this context's budget used, from 0 to 1, or as much of `span`."""
        begin, end = self._span
        return begin + (end - begin) * self._used

    @property
    def _used(self) -> float:
        """From 0 to 1.

        If its evaluations are limited, time counts beside them only where more than half of it is used, so that nothing
        depends on the clock as long as there is time enough.
        """
        span = self._until - self._from
        spent = min((self._search.position() - self._from) / span, 1.0) if span > 0 else 1.0
        more = self._more()
        if more is None or not self._most:
            return spent
        if self._search.budget.seconds is not None:
            spent = max(2.0 * spent - 1.0, 0.0)
        return max(spent, min((self._most - more) / self._most, 1.0))

    def share(self, fraction: float, stage: str, most: int | None = None) -> BudgetedContext:
        """A context with `fraction` of what is left of this one's budget; see `SearchContext.share`."""
        here = self._search.position()
        until = here + fraction * (self._until - here)
        if self._search.budget.evaluations is not None:
            until = min(max(round(until), here + 1), self._until)
        limits = [limit for limit in (most, self._more()) if limit is not None]
        return BudgetedContext(self._search, until, stage, self._line, min(limits, default=None))

    def tell(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> int:
        """Counts rows that somebody else evaluated; see `tfplace.core.search_context.SearchContext`."""
        if self._search.budget.evaluations is not None and self._is_spent():
            return 0
        rows = self._within(unit_devices)
        self._record_all(rows, *self._search.told(rows, over[: len(rows)], step_s[: len(rows)]))
        return len(rows)

    def count(self, evaluations: int) -> None:
        """Counts what workers evaluated; see `tfplace.core.search_context.SearchContext`."""
        self._search.count(evaluations, self.stage)

    def apart(self, left: Left, seed: int, span: tuple[float, float] = (0.0, 1.0)) -> BudgetedContext:
        """A context of a search of its own; see `tfplace.core.search_context.SearchContext`."""
        evaluator = self._search.evaluator
        search = SearchState(evaluator.problem, Budget(left.seconds, left.evaluations), seed, evaluator=evaluator)
        return BudgetedContext(search, search.total, self.stage, span=span)

    def critical_path(self, unit_device: IntArray) -> CriticalPath | None:
        """What the step with [U] devices waits for; see `tfplace.core.search_context.SearchContext`.

        Raises:
          BudgetSpentError: nothing of this context's budget is left.
          PlacementError: not devices of units.
        """
        self._check()
        (unit_device,) = self.problem.rows(np.asarray(unit_device)[None])
        told = self._search.evaluator.critical_path(unit_device)
        if told is None:
            return None
        path, (over, step_s) = told
        self.tell(unit_device[None], np.array([over], np.int64), np.array([step_s]))
        return path

    def log(self, metrics: Mapping[str, float]) -> None:
        """Says how a policy's training goes on."""
        self._search.log(metrics)

    def save_checkpoint(self, state: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """Keeps a state if this is the whole search; see `tfplace.core.search_context.SearchContext`."""
        if len(self._line) == 1:
            self._search.save_checkpoint(state)

    def load_checkpoint(self, *, same: bool = True) -> dict[str, NDArray[Any]] | None:
        """What was kept; see `tfplace.core.search_context.SearchContext`."""
        if len(self._line) > 1:
            return None
        kept = self._search.load_checkpoint(same)
        self.best, self.best_key = self._search.best, self._search.best_key
        return kept

    @property
    def controllers(self) -> Controllers | None:
        """The search's."""
        return self._search.controllers

    def replica(self) -> Callable[[], SearchContext]:
        """See `tfplace.core.search_context.SearchContext.replica`."""
        return functools.partial(endless_context, self._search.evaluator)

    @property
    def bound_s(self) -> float:
        """No placement's seconds can be lower; see `Evaluator.bound_s`."""
        return self._search.evaluator.bound_s

    @property
    def objective(self) -> str:
        """What keys count."""
        return self._search.evaluator.objective

    @property
    def plain(self) -> bool:
        """Whether the evaluator simulates, with default options; see `tfplace.core.search_context.SearchContext`."""
        evaluator = self._search.evaluator
        return evaluator.source == SIMULATED and evaluator.options == DEFAULT

    @property
    def left(self) -> Left:
        """What is left of this context's budget."""
        rest = max(self._until - self._search.position(), 0.0)
        if self._search.budget.seconds is not None:
            return Left(rest, None)
        more = self._more()
        return Left(None, round(rest) if more is None else min(round(rest), max(more, 0)))

    def key(self, unit_device: IntArray, limit_s: float = np.inf) -> Key:
        """What [U] devices cost; see `tfplace.core.search_context.SearchContext`.

        Raises:
          BudgetSpentError: nothing of this context's budget is left.
        """
        self._check()
        (unit_device,) = self.problem.rows(np.asarray(unit_device)[None])
        key = self._search.ask_one(unit_device, limit_s)
        self._record(unit_device, key)
        return key

    def keys(self, unit_devices: IntArray, limit_s: float = np.inf) -> tuple[LongArray, FloatArray]:
        """Keys of the rows of [B, U]; see `tfplace.core.search_context.SearchContext`.

        Raises:
          BudgetSpentError: nothing of this context's budget is left.
        """
        self._check()
        rows = self._within(self.problem.rows(unit_devices))
        # Slow ones may be interrupted, break down or use the time up: what was evaluated by then is recorded.
        limit = self._search.evaluator.batch_limit
        if limit is not None and limit < len(rows):
            parts = [self.keys(rows[i : i + limit], limit_s) for i in range(0, len(rows), limit)]
            return np.concatenate([over for over, _ in parts]), np.concatenate([step_s for _, step_s in parts])
        over, step_s = self._search.ask(rows, limit_s)
        self._record_all(rows, over, step_s)
        return over, step_s

    def _within(self, unit_devices: IntArray) -> IntArray:
        """The rows for which the budget has evaluations."""
        left = [] if self._search.budget.evaluations is None else [round(self._until - self._search.position())]
        left += [more] if (more := self._more()) is not None else []
        return unit_devices[: max(min(left), 1)] if left else unit_devices

    def _more(self) -> int | None:
        """How many more evaluations it may have at most, if that is limited."""
        return None if self._most is None else self._most - (self.evaluations - self._first)

    def _is_spent(self) -> bool:
        # The first evaluation is always allowed, so that the smallest budget still ends in a placement.
        position = self._search.position()
        more = self._more()
        if more is not None and more <= 0:
            return True
        if position < self._until or self._search.best is None:
            return False
        # By the clock a share's too, or what a placer took longer to make than it was to would be lost.
        late = self._search.budget.seconds is not None and self.best is None
        return not (late and position < self._line[-1]._until)

    def _check(self) -> None:
        if self._is_spent():
            raise BudgetSpentError

    def _record_all(self, unit_devices: IntArray, over: LongArray, step_s: FloatArray) -> None:
        for row, key in zip(unit_devices, zip(over.tolist(), step_s.tolist(), strict=True), strict=True):
            self._record(row, key)

    def _record(self, unit_device: IntArray, key: Key) -> None:
        self._search.record(unit_device, key, self.stage)
        for context in self._line:
            if context.best_key is None or key < context.best_key:
                context.best, context.best_key = unit_device.copy(), key


def whole_context(search: SearchState, stage: str) -> BudgetedContext:
    """A context with the whole budget of a search; its best is that of a run that is resumed."""
    context = BudgetedContext(search, search.total, stage)
    context.best, context.best_key = search.best, search.best_key
    return context


def endless_context(evaluator: Evaluator) -> SearchContext:
    """A context without a budget, in another process."""
    return whole_context(SearchState(evaluator.problem, _ENDLESS, 0, evaluator=evaluator), "controller")
