"""Everything on one device: what TensorFlow itself does with one accelerator, and the first thing to beat."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.placers.base import Study, settle


class Single:
    """The best single device; units without a kernel there, or pinned elsewhere, go to their fastest device."""

    citation = "TensorFlow's default: every op on one device."

    def place(self, study: Study) -> IntArray:
        """Tries each device, the most promising first; the best that fits, else the one that comes nearest."""
        problem = study.problem
        order = np.argsort(problem.costs.compute_s.sum(axis=0), kind="stable")
        candidates = [single_device(problem, d) for d in order.tolist()]
        keys = [study.key(c) for c in candidates]
        return candidates[min(range(len(candidates)), key=keys.__getitem__)]


def single_device(problem: Problem, device: int) -> IntArray:
    """[U] everything that may be on `device` there."""
    return settle(problem, np.full(problem.num_units, device, np.int32))
