"""Larger units out of the units of a problem: what a grouper's answer does to what a placer decides."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfplace.core.arrays import BoolArray, IntArray
from tfplace.core.grouping import Grouping
from tfplace.core.problem import Problem
from tfplace.errors import PlacementError


def renumber(label: IntArray) -> IntArray:
    """[U] the same groups, numbered from 0 in the order of their first units."""
    first, index = np.unique(label, return_index=True, return_inverse=True)[1:]
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[index.ravel()]


def merge_units(problem: Problem, label: IntArray) -> Problem:
    """The problem in which each group of units is one unit, which may be where all of its units may be.

    Args:
      problem: what is placed.
      label: [U] group of each unit, numbered from 0 by first unit.

    Raises:
      PlacementError: labels of another length or numbering, or a group without a device that all its units allow.
    """
    label = np.asarray(label, np.int32)
    if label.shape != (problem.num_units,):
        raise PlacementError(f"groups of shape {label.shape}", f"one group for each of {problem.num_units} units")
    if not np.array_equal(label, renumber(label)):
        raise PlacementError("groups in the wrong order", "groups numbered from 0 by their first unit; see renumber()")
    count = int(label.max(initial=-1)) + 1
    allowed: BoolArray = np.ones((count, problem.num_devices), bool)
    np.logical_and.at(allowed, label, problem.allowed)
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if len(stuck):
        raise PlacementError(
            f"group {stuck[0]}, whose units share no device", "groups of units that may all be on some device"
        )
    unit_of = np.append(label, np.int32(-1))[problem.grouping.unit_of]
    return dataclasses.replace(problem, grouping=Grouping(unit_of, count), allowed=allowed)
