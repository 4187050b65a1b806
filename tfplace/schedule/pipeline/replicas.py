"""Placements of a split step in stages with replicas, which take turns with the slices."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.core.slices import Slices
from tfplace.group.sharing import balanced_slices
from tfplace.schedule.pipeline.device_orders import device_orders
from tfplace.schedule.pipeline.line import Line, make_line, stretches_for
from tfplace.schedule.pipeline.replicated import Stage, chain_states, replicated_stages
from tfplace.schedule.pipeline.slice_devices import SlicePlacement

_TRIED = 6
"""Plans that are tried in each order of devices."""


def replicated_placements(problem: Problem, slices: Slices, devices: IntArray) -> list[IntArray]:
    """The few placements to try, each [U] wanted devices: by PipeDream's plans for each number of stages and devices.

    Those are tried whose step of K slices is shortest by sum(t) + max((K / m - 1) t), where a slice takes t seconds in
    a stage of m replicas.

    Args:
      problem: what is placed.
      slices: of its graph.
      devices: for the stages; each order of them is tried.
    """
    line = make_line(problem, slices, stretches_for(len(devices)))
    tables: dict[bytes, IntArray] = {}
    for order in device_orders(problem, devices):
        plans = [plan for used in range(1, len(order) + 1) for plan in _plans(problem, line, order[:used], slices)]
        for stages in sorted(plans, key=lambda stages: _step_s(line, order, stages, len(slices.sizes)))[:_TRIED]:
            table = _table(line, slices, order, stages)
            tables.setdefault(table.tobytes(), table)
    placement = SlicePlacement(problem, slices, line.place)
    return [placement.devices(table) for table in tables.values()]


def _plans(problem: Problem, line: Line, order: IntArray, slices: Slices) -> list[tuple[Stage, ...]]:
    """PipeDream's stages for each number of them, on devices that count as equal.

    Seconds are the devices' mean, and so are seconds per byte. Parameters count by 1 / K of their bytes, since their
    gradients are added up once for all K slices, and no stage has more replicas than slices.
    """
    share = len(slices.sizes)
    apart = ~np.eye(len(order), dtype=bool)
    per_byte = (1.0 / problem.topology.bandwidth[np.ix_(order, order)])[apart]
    bandwidth = 1.0 / float(per_byte.mean()) if len(per_byte) else np.inf
    output = line.size_bytes.mean(axis=0)[1:]  # a stage sends about as much back
    states = chain_states(line.seconds[:, order].mean(axis=1), line.parameter_bytes / share, output)
    return [plan.stages for plan in replicated_stages(states, len(order), bandwidth, most=share)]


def _step_s(line: Line, order: IntArray, stages: tuple[Stage, ...], slices: int) -> float:
    seconds = np.add.reduceat(line.seconds[:, order].mean(axis=1), [0, *(stage.end + 1 for stage in stages[:-1])])
    rounds = np.ceil(slices / np.array([stage.replicas for stage in stages]))
    return float(seconds.sum() + ((rounds - 1) * seconds).max())


def _table(line: Line, slices: Slices, order: IntArray, stages: tuple[Stage, ...]) -> IntArray:
    """[K, P] the device of each slice and stretch: stages take devices in their order, slices are shared by speed."""
    share = np.array(slices.sizes)[:, None] / np.mean(slices.sizes)
    columns, begin, used = [], 0, 0
    for stage in stages:
        devices = order[used : used + stage.replicas]
        seconds: FloatArray = share * line.seconds[begin : stage.end + 1, devices].sum(axis=0)
        mine = devices[balanced_slices(slices.sizes, seconds)]
        columns.append(np.repeat(mine[:, None], stage.end + 1 - begin, axis=1))
        begin, used = stage.end + 1, used + stage.replicas
    return np.concatenate(columns, axis=1).astype(np.int32)
