"""Units: no grouping."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.group.limits import check_count


def units(problem: Problem, count: int) -> IntArray:
    """[U] every unit a group of its own, whatever `count` is.

    Raises:
      InputError: `count` is below 1.
    """
    check_count(count)
    return np.arange(problem.num_units, dtype=np.int32)
