"""Placements of a split step in stages of one device each, through which all slices go."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import IntArray
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.schedule.pipeline.device_orders import device_orders
from tfplace.schedule.pipeline.line import make_line, stretches_for
from tfplace.schedule.pipeline.slice_devices import place_slices
from tfplace.schedule.pipeline.step_cuts import Cut, few_cuts, straight_cuts

_TRIED = 6


def straight_placements(problem: Problem, slices: Slices, devices: IntArray, *, all_held: bool) -> list[IntArray]:
    """The few placements to try, each [U] wanted devices: of the shortest steps by `straight_cuts`.

    If nothing fits by its numbers, those that are least too large are among them.

    Args:
      problem: what is placed.
      slices: of its graph.
      devices: of which each has at most one stage.
      all_held: whether a stage holds what all slices keep for their backward pass, or min(K, stages left) of them.
    """
    line, count = make_line(problem, slices, stretches_for(len(devices))), len(slices.sizes)
    orders, unlimited = device_orders(problem, devices), np.full_like(problem.memory_limit, np.iinfo(np.int64).max)
    cuts: list[Cut] = []
    for limit in (problem.memory_limit, unlimited):
        for order in orders if not cuts else ():
            cuts += straight_cuts(line, problem.topology, order, count, limit, all_held=all_held)
    cuts = few_cuts(cuts, _TRIED)
    held = line.kept_bytes + count * line.stashed_bytes
    if not (held.sum() <= problem.memory_limit[devices]).all():  # more than some device has
        share = held[:, None] / np.maximum(problem.memory_limit, 1)
        by_bytes = line._replace(seconds=share, messages=0 * line.messages, size_bytes=0 * line.size_bytes)
        balanced = [
            straight_cuts(by_bytes, problem.topology, order, 10**6, unlimited, all_held=True) for order in orders
        ]
        cuts += few_cuts([cut for found in balanced for cut in found], 1)
    tables = [np.tile(cut.along(), (count, 1)) for cut in cuts]
    return [place_slices(problem, slices, line.place, table) for table in tables]
