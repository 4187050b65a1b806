"""Random placements."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.group.co_placement import merge
from tfplace.local_search.devices import compute_devices

_HOST_SHARE = 0.01


def device_share(problem: Problem) -> FloatArray:
    """[U, D] with what probability a blind draw puts each unit on each device; 0 where it may not be.

    The accelerators are equally likely. A host beside them is drawn a hundredth as often, or always by units that may
    be nowhere else.
    """
    weight = np.full(problem.num_devices, _HOST_SHARE)
    weight[compute_devices(problem)] = 1.0
    share = problem.allowed * weight
    normal: FloatArray = share / share.sum(axis=1, keepdims=True)
    return normal


def together(problem: Problem, order: IntArray, count: int) -> IntArray:
    """[U] which rows, each of which is a unit, draw with the same random number: those of one of `count` groups.

    Of thousands of units that draw each for itself hardly two neighbors come to the same device, so that all that
    placements drawn differ in is how much they send. Each unit's own probabilities stay what they are.

    Args:
      problem: whose units.
      order: [U] the unit of each row.
      count: of groups; if there are no more units, each draws for itself.
    """
    if problem.num_units <= count:
        return np.arange(problem.num_units, dtype=np.int32)
    return merge(problem, count)[order]


def pick(keys: FloatArray, share: FloatArray) -> IntArray:
    """[B, U] devices: in which of the intervals that the shares cut out of [0, 1) each key lies.

    Args:
      keys: [B, U] numbers of at least 0 and below 1; random ones draw devices with the shares as probabilities.
      share: [U, D] lengths of the intervals, in proportion.
    """
    top = np.cumsum(share, axis=1)
    top /= top[:, -1:]
    devices = np.zeros(keys.shape, np.int32)
    for d in range(share.shape[1] - 1):
        devices += keys >= top[:, d]
    return devices
