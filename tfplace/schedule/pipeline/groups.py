"""Placements of a split step in groups of devices, each of which is a pipeline of its own for a part of the slices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.group.owners import balanced_slices
from tfplace.schedule.pipeline.device_orders import by_speed, device_orders, neighbor_groups
from tfplace.schedule.pipeline.line import Line, make_line, stretches_for
from tfplace.schedule.pipeline.slice_devices import place_slices
from tfplace.schedule.pipeline.step_cuts import Cut, few_cuts, straight_cuts

_CUTS = 2
"""Cuts of each group that are tried."""


def grouped_placements(
    problem: Problem, slices: Slices, devices: IntArray, homes: Sequence[int | None]
) -> list[IntArray]:
    """The few placements to try, each [U] wanted devices.

    Args:
      problem: what is placed.
      slices: of its graph.
      devices: divided into equal groups of neighbors, in all ways.
      homes: devices of inputs that are tried; None for where they are read.
    """
    line = make_line(problem, slices, stretches_for(len(devices)))
    fastest = by_speed(problem, devices)
    tables: dict[bytes, IntArray] = {}
    for size in range(len(devices), 0, -1):
        if len(devices) % size == 0:
            groups = neighbor_groups(problem, fastest, size)
            for table in _tables(problem, line, slices, groups):
                tables.setdefault(table.tobytes(), table)
    return [place_slices(problem, slices, line.place, table, home) for table in tables.values() for home in homes]


def _tables(problem: Problem, line: Line, slices: Slices, groups: list[IntArray]) -> list[IntArray]:
    """[K, P] the device of each slice and stretch, with the best cut of each group, and with their second ones."""
    share = math.ceil(len(slices.sizes) / len(groups))
    cuts = [_cuts(problem, line, group, share, len(groups)) for group in groups]
    speed = np.array([found[0].step_s for found in cuts])
    group_of = balanced_slices(slices.sizes, np.array(slices.sizes)[:, None] * speed)
    out = []
    for rank in range(_CUTS):
        along = [found[min(rank, len(found) - 1)].along() for found in cuts]
        out.append(np.stack([along[g] for g in group_of]))
    return out


def _cuts(problem: Problem, line: Line, group: IntArray, slices: int, groups: int) -> list[Cut]:
    """The cuts of one group to try; those that do not fit if there are no others."""
    line = line._replace(kept_bytes=line.kept_bytes / groups)  # owners are spread over the groups
    unlimited = np.full_like(problem.memory_limit, np.iinfo(np.int64).max)
    cuts: list[Cut] = []
    for limit in (problem.memory_limit, unlimited):
        for order in device_orders(problem, group) if not cuts else ():
            cuts += straight_cuts(line, problem.topology, order, slices, limit, all_held=False)
    return few_cuts(cuts, _CUTS)
