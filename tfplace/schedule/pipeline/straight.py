"""Placements of a split step in stages of one device each, through which all slices go."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray, LongArray
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.schedule.pipeline.device_orders import device_orders
from tfplace.schedule.pipeline.line import Line, make_line, stretches_for
from tfplace.schedule.pipeline.slice_devices import SlicePlacement
from tfplace.schedule.pipeline.step_cuts import Cut, few_cuts, straight_cuts

_TRIED = 8
"""Cuts."""

_SCARCE = (0.85, 0.7)
"""Parts of the memory that are kept to as well where it is short: what ops take while they run is not known."""

_UNLIMITED = np.iinfo(np.int64).max


def straight_placements(problem: Problem, slices: Slices, devices: IntArray, *, all_held: bool) -> list[IntArray]:
    """The few placements to try, each [U] wanted devices: those of `cuts_to_try`.

    Args:
      problem: what is placed.
      slices: of its graph.
      devices: of which each has at most one stage.
      all_held: whether a stage holds what all slices keep for their backward pass, or min(K, stages left) of them.
    """
    line, count = make_line(problem, slices, stretches_for(len(devices))), len(slices.sizes)
    cuts = cuts_to_try(problem, line, devices, count, _TRIED, all_held=all_held)
    tables = [np.tile(cut.along(), (count, 1)) for cut in cuts]
    placement = SlicePlacement(problem, slices, line.place)
    return [placement.devices(table) for table in tables]


def cuts_to_try(
    problem: Problem, line: Line, devices: IntArray, slices: int, most: int, *, all_held: bool
) -> list[Cut]:
    """A few cuts of the shortest steps by `straight_cuts`, over all orders of the devices.

    Where memory is short there are others that need less of it, at last the one whose fullest device is least full.

    Args:
      problem: what is placed.
      line: of its step.
      devices: of which each has at most one stage.
      slices: that go through the stages.
      most: cuts, where memory is not short.
      all_held: whether a stage holds what all slices keep for their backward pass, or min(K, stages left) of them.
    """
    orders, limit = device_orders(problem, devices), problem.memory_limit

    def few(line: Line, limit: LongArray, most: int, *, held: bool = all_held) -> list[Cut]:
        cuts = (straight_cuts(line, problem.topology, order, slices, limit, all_held=held) for order in orders)
        return few_cuts([cut for found in cuts for cut in found], most)

    everything = line.kept_bytes + slices * line.stashed_bytes
    found = few(line, limit, most)
    if everything.sum() > _SCARCE[-1] * limit[devices].min():  # more than some device has
        unlimited = np.full_like(limit, _UNLIMITED)
        found = found or few(line, unlimited, most)
        for part in _SCARCE:
            found += few(line, (part * limit).astype(np.int64), 2)
        found += [] if all_held else few(line, limit, 2, held=True)  # whoever runs the step may hold all
        full, nothing = everything[:, None] / np.maximum(limit, 1.0), np.zeros_like(line.messages)
        balanced = few(line._replace(seconds=full, messages=nothing, size_bytes=nothing), unlimited, _UNLIMITED)
        found.append(min(balanced, key=lambda cut: cut.longest_s))
    return list({cut.along().tobytes(): cut for cut in found}.values())
