"""Scope: the layers of a model."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.group.layers import layers
from tfplace.group.limits import check_count, finish


def scope(problem: Problem, count: int) -> IntArray:
    """[U] layers by name scope, numbered by first unit; gradients and updates join their forward layer.

    The scopes are looked at as deep as it takes to tell `count` layers apart, or where they tell most if there are
    fewer. If that tells more apart, consecutive layers are joined, those of least seconds first. Where names tell
    nothing, layers are chunks in the order of the earliest starts. See `tfplace.group.layers.layers`.

    Models are grouped by hand like this in A. Mirhoseini et al.: Device Placement Optimization with Reinforcement
    Learning, ICML 2017, section 3.3, rule (c): a step of a recurrent cell, a block of a convolutional branch.

    Args:
      problem: what is placed.
      count: at most so many groups, but for what `tfplace.group.limits.finish` says; fewer if names tell no more apart.

    Raises:
      InputError: `count` is below 1.
    """
    check_count(count)
    devices = np.arange(problem.num_devices, dtype=np.int32)
    label = layers(problem, count, devices, fewer=True) if problem.num_units else np.zeros(0, np.int32)
    return finish(problem, label, count)
