"""METIS: k-way partitioning, a part for each accelerator."""

from __future__ import annotations

import itertools

import numpy as np

from tfplace.core.arrays import FloatArray, IntArray
from tfplace.core.placer import Placer
from tfplace.core.problem import Problem
from tfplace.core.search_context import SearchContext
from tfplace.core.stepcost import Key
from tfplace.group.metis import balance_weight, partition
from tfplace.group.parts import assign_parts, device_shares, fit_variables
from tfplace.group.unit_graph import UnitGraph, sum_parallel, unit_graph
from tfplace.local_search.devices import compute_devices, settle

_TOLERANCES = (0.03, 0.1, 0.3, 1.0)
_MOST_SWAPS = 30


class Metis(Placer):
    """Cuts the graph of units into a part per accelerator with little between them and work in proportion to its speed.

    A unit weighs its mean seconds, an edge the mean seconds of the transfers along it. METIS is asked four times, with
    parts that may be 3, 10, 30 and 100 % heavier than their share. If none of these fits the memory it is asked again,
    with the bytes of variables as half of the weight and less memory to plan with. Parts go to the devices for whose
    speed they were made, those that exchange much to neighbors; then exchanges of two devices that shorten the step
    are kept. The shortest simulated step is the answer.

    Departures from the papers that compare with METIS, which give no details: bytes are in the weight rather than a
    constraint of their own (multi-constraint partitioning, which pymetis has no access to); units that may not be on
    their part's device go to the fastest they may be on; and variables that a device cannot hold are moved.
    """

    citation = (
        "G. Karypis, V. Kumar: Multilevel k-way Partitioning Scheme for Irregular Graphs. Journal of Parallel and "
        "Distributed Computing 48(1), 1998; as a baseline of placement in Y. Zhou et al.: GDP: Generalized Device "
        "Placement for Dataflow Graphs. arXiv:1910.01578, 2019."
    )

    def place(self, context: SearchContext) -> IntArray:
        """Partitions a few times; the best of these."""
        problem = context.problem
        graph, devices = unit_graph(problem), compute_devices(problem)
        tried: list[tuple[Key, int, IntArray]] = []
        for weight, fraction in zip(_weights(problem, graph), (1.0, _level(problem, graph, devices)), strict=True):
            for tolerance in _TOLERANCES:
                wanted = _partitioned(problem, graph, devices, weight, tolerance)
                placed = fit_variables(problem, graph, settle(problem, wanted), fraction)
                tried.append((context.key(placed), len(tried), placed))
            if min(tried)[0][0] == 0:
                break
        key, _, best = min(tried, key=lambda each: each[:2])
        return _swapped(context, devices, best, key)


def _weights(problem: Problem, graph: UnitGraph) -> tuple[FloatArray, FloatArray]:
    """[U] seconds, and seconds and variables together."""
    seconds = balance_weight(problem, graph._replace(size_bytes=np.zeros(problem.num_units)))
    return seconds, seconds + graph.size_bytes / max(float(graph.size_bytes.sum()), 1e-300)


def _level(problem: Problem, graph: UnitGraph, devices: IntArray) -> float:
    """A fraction of the memory for variables: halfway between all of it and what they take if it is evenly filled."""
    used = float(graph.size_bytes.sum()) / max(float(problem.memory_limit[devices].sum()), 1.0)
    return (1.0 + min(used, 1.0)) / 2


def _partitioned(
    problem: Problem, graph: UnitGraph, devices: IntArray, weight: FloatArray, tolerance: float
) -> IntArray:
    """[U] the device of each unit's part; the first of `devices` for units that cannot be on any of them."""
    units = np.flatnonzero(problem.allowed[:, devices].any(axis=1))
    place = np.full(problem.num_units, -1, np.int32)
    place[units] = np.arange(len(units), dtype=np.int32)
    inside = (place[graph.low] >= 0) & (place[graph.high] >= 0)
    edges = sum_parallel(place[graph.low[inside]], place[graph.high[inside]], graph.weight[inside], len(units))
    part = np.full(problem.num_units, -1, np.int32)
    shares = device_shares(problem, devices)
    part[units] = partition(edges, weight[units], len(devices), shares=shares, tolerance=tolerance)
    return np.append(assign_parts(problem, graph, part, devices), devices[:1])[part]


def _swapped(context: SearchContext, devices: IntArray, best: IntArray, key: Key) -> IntArray:
    """[U] after exchanging the contents of pairs of devices, once each, wherever that shortens the step."""
    for a, b in itertools.islice(itertools.combinations(devices.tolist(), 2), _MOST_SWAPS):
        swap = np.arange(context.problem.num_devices, dtype=np.int32)
        swap[[a, b]] = b, a
        wanted = settle(context.problem, swap[best])
        if (found := context.key(wanted)) < key:
            best, key = wanted, found
    return best
