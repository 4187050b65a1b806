"""Search: runs a placer within a budget, and answers with the best it found."""

from __future__ import annotations

import contextlib
import math

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError
from tfplace.errors import ApplyError, ClusterError, InputError, PlacementError, UnwrittenError, WorkersError
from tfplace.search.budgeted_context import BudgetedContext, whole_context
from tfplace.search.search_state import SearchState

CANNOT_GO_ON = (ApplyError, ClusterError, WorkersError, UnwrittenError)
"""Raised by an evaluator that can tell nothing any more, or when controllers do not come back."""


class Search(SearchState):
    """One search: its state, and the placers that are run on it.

    Attributes:
      interrupted: whether Ctrl-C ended it.
      broken: why the evaluator, its controllers or the run's directory could not go on; None while they can.
    """

    interrupted = False
    broken: Exception | None = None

    def run(self, placer: Placer, stage: str, *, interruptible: bool = True) -> IntArray:
        """[U] the placer's answer; the best it evaluated if its budget ran out or the user or the evaluator stopped it.

        Args:
          placer: what is run.
          stage: logged with its improvements.
          interruptible: whether what stops this stops only this, and not what it is a part of.

        Raises:
          PlacementError: the placer chose no devices that the units may be on.
          InputError: the placer's time was up before it had placed anything.
          KeyboardInterrupt: stopped before any placement was found, or stopped and not interruptible.
          ApplyError, ClusterError, WorkersError, UnwrittenError: the evaluator, its controllers or the run's directory
            cannot go on, and there is no placement that ran, or as above.
        """
        if not self.problem.num_units:  # constants only, which follow one another
            return np.zeros(0, np.int32)
        context = self.context(stage)
        try:
            with contextlib.suppress(BudgetSpentError):
                for known in self.queue:
                    context.key(known)
                chosen = self._better(context, self._checked(placer.place(context), stage))
                self._end(stage)
                return chosen
            if context.best is None:  # though the first evaluation is always allowed
                raise InputError(
                    f"a budget of {self.budget}, in which {stage} placed nothing", "a budget for at least one placement"
                )
            self._end(stage)
            return context.best
        except KeyboardInterrupt:
            self._look_back(context)
            if context.best is None or not interruptible:
                raise
            self.interrupted = True
            return context.best
        except CANNOT_GO_ON as error:
            self._look_back(context)
            if (
                context.best is None
                or context.best_key is None
                or not np.isfinite(context.best_key[1])
                or not interruptible
            ):
                raise
            self.broken = error
            return context.best

    def _checked(self, chosen: IntArray, stage: str) -> IntArray:
        try:
            return self.problem.check(chosen)
        except PlacementError as error:
            raise PlacementError(error.received, error.expected, f"{stage!r} chose this placement.") from error

    def _look_back(self, context: BudgetedContext) -> None:
        """What the run has found counts, also where a search that does it again has not come as far."""
        found = None if self._run is None else self._run.best
        if found is not None and (context.best_key is None or found.key < context.best_key):
            self.best, self.best_key = context.best, context.best_key = found

    def _end(self, stage: str) -> None:
        if self._run is not None:
            self._run.written(now=True)  # here, where it is still known what to do if that fails
        self.report(stage, last=True)

    def _better(self, context: BudgetedContext, chosen: IntArray) -> IntArray:
        """What the placer chose, or what it evaluated if that is better."""
        if context.best is None or np.array_equal(context.best, chosen):
            return chosen
        self.record(chosen, self.ask_one(chosen, math.inf), context.stage)
        assert self.best is not None
        return self.best

    def context(self, stage: str) -> BudgetedContext:
        """A context with the whole budget."""
        return whole_context(self, stage)
