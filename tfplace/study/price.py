"""How a search compares placements, and the steps it may give up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.stepcost import Key
from tfplace.study.base import Study
from tfplace.study.devices import compute_devices

_OVER_S = 0.01
_OVER_ALL_S = 2.0
_PACE, _MOST = 50.0, 1e6


class Price:
    """One number for a key, in seconds, so that a search can pass through placements that do not fit the memory.

    It is the step's seconds, and for what does not fit a price that grows with the bytes missing, relative to the step
    of the placement the search starts from.

    Args:
      problem: what is placed.
      start: the key of the placement the search starts from.

    Attributes:
      weight: by which the price of missing bytes is multiplied, from 1 on; see `adapt`.
    """

    weight = 1.0

    def __init__(self, problem: Problem, start: Key) -> None:
        self.scale_s = start[1] if math.isfinite(start[1]) else float(problem.unit_seconds.min(axis=1).sum())
        # a host's memory, often far larger than what is short, would make all of that look small
        self._limit_bytes = max(float(problem.memory_limit[compute_devices(problem)].sum()), 1.0)

    def __call__(self, key: Key) -> float:
        """Seconds a key counts as."""
        over, step_s = key
        return step_s + (self._missing_s * (_OVER_S + _OVER_ALL_S * over / self._limit_bytes) if over else 0.0)

    def rows(self, over: LongArray, step_s: FloatArray) -> FloatArray:
        """[B] the same of `Study.keys`."""
        missing = self._missing_s * (_OVER_S + _OVER_ALL_S * over / self._limit_bytes)
        return np.asarray(step_s + np.where(over > 0, missing, 0.0), np.float64)

    @property
    def _missing_s(self) -> float:
        return self.scale_s * self.weight

    def adapt(self, fits: bool, part: float) -> None:
        """Raises the price of missing bytes while a search is where they are missing, and lowers it while it is not.

        The self-adjusting penalty of M. Gendreau, A. Hertz, G. Laporte: A Tabu Search Heuristic for the Vehicle Routing
        Problem, Management Science 40(10), 1994, section 2: no price given beforehand is right for every graph, and the
        best placements that fit are found from either side of the limit.

        Args:
          fits: whether the present placement fits.
          part: of the search's budget that was spent there, from 0 to 1.
        """
        self.weight = min(max(self.weight * math.exp((-part if fits else part) * _PACE), 1.0), _MOST)


def begin(study: Study, starts: Sequence[IntArray]) -> tuple[IntArray, Key, Price]:
    """Evaluates the placements a search may start from, at least one: the best, its key, and prices relative to it."""
    keys = [study.key(start) for start in starts]
    best = min(range(len(starts)), key=keys.__getitem__)
    return starts[best], keys[best], Price(study.problem, keys[best])


def limit_for(study: Study, most_s: float) -> float:
    """The `limit_s` for a search that accepts up to `most_s`: never so low that the best placement could be missed."""
    if study.best_key is None or study.best_key[0]:
        return math.inf  # a long step that misses fewer bytes would be the best
    return max(most_s, study.best_key[1])
