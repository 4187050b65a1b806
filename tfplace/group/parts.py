"""From parts of a partition to devices: which part goes where, and what has to move because memory is short."""

from __future__ import annotations

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray, IntArray
from tfplace.core.problem import Problem
from tfplace.group.unit_graph import UnitGraph, adjacency

_ALIKE = 0.01
"""Devices whose speeds differ by less are interchangeable."""

_TYPICAL_BYTES = 1e6


def device_shares(problem: Problem, devices: IntArray) -> FloatArray:
    """[K] the part of the work that would keep each of `devices` busy for as long as the others; sums to 1."""
    usable = problem.allowed[:, devices].all(axis=1)
    seconds = problem.unit_seconds[usable][:, devices].sum(axis=0)
    speed = np.ones(len(devices)) if not np.all(seconds > 0) else seconds.max() / seconds
    share: FloatArray = speed / speed.sum()
    return share


def link_slowness(problem: Problem) -> FloatArray:
    """[D, D] seconds to send a megabyte one way, the mean of both, relative to the mean pair; 0 on the diagonal."""
    topology = problem.topology
    seconds = topology.latency_s + _TYPICAL_BYTES / topology.bandwidth
    both: FloatArray = (seconds + seconds.T) / 2
    apart = ~np.eye(len(both), dtype=bool)
    if apart.any():
        both = both / max(float(both[apart].mean()), 1e-300)
    return both * apart


def assign_parts(problem: Problem, graph: UnitGraph, part: IntArray, devices: IntArray) -> IntArray:
    """[K] the device for each part, so that what exchanges much is near.

    Part k was made for the speed of device k, so it may go to any device about as fast. The part that exchanges most
    with what is placed already is next, and goes where that costs least; a tie goes to the lower device. Units that can
    only be on one device count as placed.

    Args:
      problem: what is placed.
      graph: of it.
      part: [U] parts 0..K-1, -1 for units that are in none.
      devices: [K] what they are made for.
    """
    count = len(devices)
    exchange, pull = _exchange(problem, graph, part, count)
    share = device_shares(problem, devices)
    alike = np.abs(share[:, None] - share) <= _ALIKE * share[:, None]
    slow = link_slowness(problem)
    home = np.full(count, -1)
    free: BoolArray = np.ones(count, bool)
    for _ in range(count):
        open_parts = np.flatnonzero(home < 0)
        placed = np.flatnonzero(home >= 0)
        near = exchange[:, placed].sum(axis=1) + pull.sum(axis=1)
        k = int(open_parts[near[open_parts].argmax()])
        cost = pull[k] @ slow[:, devices] + exchange[k, placed] @ slow[np.ix_(devices[home[placed]], devices)]
        usable = free & alike[k]  # may be none: what is alike in steps is not alike from end to end
        home[k] = int(np.where(usable if usable.any() else free, cost, np.inf).argmin())
        free[home[k]] = False
    return np.asarray(devices[home], np.int32)


def _exchange(problem: Problem, graph: UnitGraph, part: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """[K, K] seconds exchanged between parts, and [K, D] with units that are in none and have one device to be on."""
    device = np.where(graph.decided[graph.kind], problem.allowed.argmax(axis=1), -1)
    exchange, pull = np.zeros((count, count)), np.zeros((count, problem.num_devices))
    for a, b in ((graph.low, graph.high), (graph.high, graph.low)):
        inside = (part[a] >= 0) & (part[b] >= 0)
        np.add.at(exchange, (part[a[inside]], part[b[inside]]), graph.weight[inside])
        fixed = (part[a] >= 0) & (part[b] < 0) & (device[b] >= 0)
        np.add.at(pull, (part[a[fixed]], device[b[fixed]]), graph.weight[fixed])
    np.fill_diagonal(exchange, 0.0)
    return exchange, pull


def fit_variables(problem: Problem, graph: UnitGraph, unit_device: IntArray, fraction: float = 1.0) -> IntArray:
    """[U] the same devices, but units moved off those that cannot hold their variables.

    Of an overfull device the largest variables go first, each to the device with room that the unit exchanges most
    with, among those the roomiest; if none has room, the unit stays.

    Args:
      problem: what is placed.
      graph: of it.
      unit_device: [U], each an allowed one.
      fraction: of every device's memory that variables may take.
    """
    limit = fraction * problem.memory_limit
    device = unit_device.copy()
    held = np.bincount(device, graph.size_bytes, problem.num_devices)
    if np.all(held <= limit):
        return device
    rows = adjacency(graph.low, graph.high, problem.num_units)
    for unit in np.argsort(-graph.size_bytes, kind="stable").tolist():
        size, here = float(graph.size_bytes[unit]), int(device[unit])
        if not size:
            break
        room = np.flatnonzero(problem.allowed[unit] & (held + size <= limit))
        if held[here] <= limit[here] or not len(room):
            continue
        mine = slice(rows.offset[unit], rows.offset[unit + 1])
        near = np.bincount(device[rows.other[mine]], graph.weight[rows.edge[mine]], problem.num_devices)
        there = int(max(room.tolist(), key=lambda d: (near[d], limit[d] - held[d], -d)))
        held[here] -= size
        held[there] += size
        device[unit] = there
    return device
