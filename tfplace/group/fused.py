"""Ops that are one kernel of a compiled step, decided together."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.group.merge import merge_units, renumber


def fuse_units(problem: Problem, groups: IntArray) -> Problem:
    """The problem in which units that have ops of one kernel are one unit, if they may be on the same devices.

    Where a rule or a kernel that a device lacks keeps them apart, the costs of the group are those of a kernel all the
    same.

    Args:
      problem: what is placed.
      groups: [V] kernel of each op, -1 for none; see `tfplace.cost.fusion.fusion_groups`.
    """
    unit_of = problem.grouping.unit_of
    ops = np.flatnonzero((unit_of >= 0) & (groups >= 0))
    where = np.unique(problem.allowed, axis=0, return_inverse=True)[1].ravel()[unit_of[ops]]
    kernel = np.unique(np.stack([groups[ops], where]), axis=1, return_inverse=True)[1].ravel()
    count, kernels = problem.num_units, int(kernel.max(initial=-1)) + 1
    joined = coo_array((np.ones(len(ops), np.int8), (unit_of[ops], count + kernel)), shape=(count + kernels,) * 2)
    label = connected_components(joined.tocsr(), directed=False)[1][:count]
    return merge_units(problem, renumber(label.astype(np.int32)))
