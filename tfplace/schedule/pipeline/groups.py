"""A split step in groups of devices, each of which is a pipeline of its own for a part of the slices."""

from __future__ import annotations

import math

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.group.sharing import balanced_slices
from tfplace.schedule.pipeline.device_orders import by_speed, neighbor_groups
from tfplace.schedule.pipeline.line import Line, make_line, stretches_for
from tfplace.schedule.pipeline.straight import cuts_to_try

_CUTS = 4
"""Cuts of each group that are tried."""


def grouped_tables(problem: Problem, slices: Slices, devices: IntArray) -> tuple[IntArray, list[IntArray]]:
    """The few tables to try with `SlicePlacement`, and the stretch of each unit.

    Args:
      problem: what is placed.
      slices: of its graph.
      devices: divided into equal groups of neighbors, in all ways.
    """
    line = make_line(problem, slices, stretches_for(len(devices)))
    fastest = by_speed(problem, devices)
    tables: dict[bytes, IntArray] = {}
    for size in range(len(devices), 0, -1):
        if len(devices) % size == 0:
            for table in _tables(problem, line, slices, neighbor_groups(problem, fastest, size)):
                tables.setdefault(table.tobytes(), table)
    return line.place, list(tables.values())


def _tables(problem: Problem, line: Line, slices: Slices, groups: list[IntArray]) -> list[IntArray]:
    """[K, P] the device of each slice and stretch, with the groups' best cuts, with their second ones, and so on."""
    share = math.ceil(len(slices.sizes) / len(groups))
    line = line._replace(kept_bytes=line.kept_bytes / len(groups))  # owners are spread over the groups
    cuts = [cuts_to_try(problem, line, group, share, _CUTS, all_held=False) for group in groups]
    seconds = np.array(slices.sizes)[:, None] * np.array([found[0].step_s for found in cuts])
    group_of = balanced_slices(slices.sizes, seconds)
    out = []
    for rank in range(max(map(len, cuts))):
        along = [found[min(rank, len(found) - 1)].along() for found in cuts]
        out.append(np.stack([along[g] for g in group_of]))
    return out
