"""How a search compares placements, and the steps it may give up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.search_context import SearchContext
from tfplace.core.stepcost import Key
from tfplace.local_search.devices import compute_devices

_OVER_S = 0.01
_OVER_ALL_S = 2.0
_PACE, _MOST = 50.0, 1e6
"""Logarithm of what the price would rise by over a whole budget, and how often the first price it is at most."""

_DOUBLING = 10
"""Evaluations in which it doubles at the soonest."""


class PenalizedCost:
    """One number for a key, in seconds, so that a search can pass through placements that do not fit the memory.

    It is the step's seconds, and for what does not fit a price that grows with the bytes missing, relative to the step
    of the placement the search starts from. No price is right for every graph, so a search says where it is (`adapt`):
    the price rises while that does not fit, and falls, to the first at the lowest, while it does.

    That is the self-adjusting penalty of M. Gendreau, A. Hertz, G. Laporte: A Tabu Search Heuristic for the Vehicle
    Routing Problem, Management Science 40(10), 1994. Departure: it changes by a factor that depends on the part of the
    budget spent, and no faster than theirs, which is doubled or halved after ten moves alike.

    Args:
      context: of the search.
      start: the key of the placement it starts from.
      weight: how many times the first price it is, for a search that goes on.

    Attributes:
      weight: the same now.
    """

    def __init__(self, context: SearchContext, start: Key, weight: float = 1.0) -> None:
        problem = context.problem
        step_s = start[1] if math.isfinite(start[1]) else float(problem.unit_seconds.min(axis=1).sum())
        self.scale_s = step_s or 1.0  # where nothing takes time, what does not fit has a price all the same
        # a host's memory, often far larger than what is short, would make all of that look small
        limit_bytes = max(float(problem.memory_limit[compute_devices(problem)].sum()), 1.0)
        self._first_s, self._byte_s = _OVER_S * self.scale_s, _OVER_ALL_S * self.scale_s / limit_bytes
        self.weight = weight
        self._context, self._spent, self._made = context, context.spent, context.evaluations

    def __call__(self, key: Key) -> float:
        """Seconds a key counts as."""
        over, step_s = key
        return step_s + (self.weight * (self._first_s + self._byte_s * over) if over else 0.0)

    def rows(self, over: LongArray, step_s: FloatArray) -> FloatArray:
        """[B] the same of `SearchContext.keys`."""
        missing = self.weight * (self._first_s + self._byte_s * over)
        return np.asarray(step_s + np.where(over > 0, missing, 0.0), np.float64)

    def adapt(self, fits: bool) -> None:
        """Says whether the search has been, since it last said so, at placements that fit."""
        spent, made = self._context.spent, self._context.evaluations
        soonest = math.log(2.0) * (made - self._made) / _DOUBLING
        factor = math.exp(min(_PACE * (spent - self._spent), soonest))
        self.weight = max(self.weight / factor, 1.0) if fits else min(self.weight * factor, _MOST)
        self._spent, self._made = spent, made


def best_start(context: SearchContext, starts: Sequence[IntArray]) -> tuple[IntArray, Key]:
    """Evaluates the placements a search may start from, at least one: the best, and its key."""
    keys = [context.key(start) for start in starts]
    best = min(range(len(starts)), key=keys.__getitem__)
    return starts[best], keys[best]


def begin(context: SearchContext, starts: Sequence[IntArray]) -> tuple[IntArray, Key, PenalizedCost]:
    """Evaluates the placements a search may start from, at least one: the best, its key, and prices relative to it."""
    start, key = best_start(context, starts)
    return start, key, PenalizedCost(context, key)


def limit_for(context: SearchContext, most_s: float) -> float:
    """The `limit_s` for a search that accepts up to `most_s`: never so low that the best placement could be missed."""
    if context.best_key is None or context.best_key[0]:
        return math.inf  # a long step that misses fewer bytes would be the best
    return max(most_s, context.best_key[1])
