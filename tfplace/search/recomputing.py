"""Placed steps that are made to fit by computing results again, as they are simulated for an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tfplace.core.placement import Placement
from tfplace.rematerialization.greedy import greedy
from tfplace.rematerialization.rematerialize import of_placement, placed_alike
from tfplace.rematerialization.trial import Trial
from tfplace.search.ordered import best_order
from tfplace.simulation.options import DEFAULT

_TRIES = 3
"""With less memory each time."""


def fitting_trial(placement: Placement, goes_on: Callable[[], bool] = lambda: True) -> Trial:
    """The step with results computed again so that it fits, or exceeds memory least, in the order that suits it best.

    What to compute again is chosen for ops in the order of TensorFlow's executor. In other orders it may save less, and
    then it is chosen for less memory.

    Args:
      placement: of a step in which nothing is computed again.
      goes_on: see `greedy`.

    Raises:
      InputError: it does not know its problem.
    """
    trials = of_placement(placement)
    may = trials.problem.memory_limit
    limit = may.copy()
    tried = []
    for _ in range(_TRIES):
        trial = greedy(trials, limit, goes_on)
        cost = in_best_order(placement, trial).cost
        tried.append((cost.key, trial))
        if cost.feasible or (trial.cost.peak_bytes > limit).any() or not goes_on():
            break
        over = np.maximum(cost.peak_bytes / np.maximum(may, 1), 1.0)
        limit = (limit / over).astype(np.int64)
    return min(tried, key=lambda one: one[0])[1]


def in_best_order(placement: Placement, trial: Trial) -> Placement:
    """A placement of a step in which results are computed again, in its own order, or in another if it does not fit."""
    assert placement.problem is not None
    if trial.graph is placement.problem.graph:
        return placement
    found = placed_alike(placement, trial)
    if found.cost.feasible:
        return found
    assert found.problem is not None
    best = best_order(found.problem, found.op_device, DEFAULT)
    return found if found.cost.key <= best.cost.key else replace(found, **best._asdict())
