"""Many placements evaluated at once."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext

WHOLE_SPACE = 2000
"""A search tries all placements if there are no more than this many."""

_FIRST_ROWS, _MOST_ROWS = 4, 256
_LARGE_PART = 0.01


def all_keys(context: SearchContext, unit_devices: IntArray, limit_s: float = math.inf) -> tuple[LongArray, FloatArray]:
    """`SearchContext.keys` of all rows of [B, U], in small parts where a budget in seconds could be overrun by much.

    Raises:
      BudgetSpentError: the budget does not suffice for all rows; what it sufficed for is kept.
    """
    over, step_s = [np.zeros(0, np.int64)], [np.zeros(0)]
    first, size = 0, _FIRST_ROWS
    while first < len(unit_devices):
        before = context.spent
        part = context.keys(unit_devices[first : first + size], limit_s)
        over.append(part[0])
        step_s.append(part[1])
        first += len(part[0])
        size = max(size // 2, 1) if context.spent - before > _LARGE_PART else min(2 * size, _MOST_ROWS)
    return np.concatenate(over), np.concatenate(step_s)


def placements(problem: Problem) -> float:
    """How many placements there are; infinite if they are far more than `WHOLE_SPACE`."""
    counts = problem.allowed.sum(axis=1)
    if np.log(counts).sum() > 2 * math.log(WHOLE_SPACE):  # of many units the product has thousands of digits
        return math.inf
    return float(math.prod(counts.tolist()))


def try_all(context: SearchContext) -> bool:
    """Evaluates every placement if the budget suffices for all and there are at most `WHOLE_SPACE`.

    Each unit's fastest device comes first.

    Returns:
      Whether it did.
    """
    problem, evaluations = context.problem, context.left.evaluations
    space = placements(problem)
    if space > WHOLE_SPACE or (evaluations is not None and evaluations < space):
        return False
    order = np.argsort(problem.unit_seconds, axis=1, kind="stable")
    choices = [row[:n].tolist() for row, n in zip(order, problem.allowed.sum(axis=1).tolist(), strict=True)]
    rows = np.array([*itertools.product(*choices)], np.int32)
    before = context.spent
    context.key(rows[0])
    if evaluations is None and (context.spent - before) * (len(rows) - 1) > 1 - context.spent:
        return False
    all_keys(context, rows[1:])
    return True
