"""Regions by breadth-first search against one written plainly; neighbours and clusters of small graphs."""

from __future__ import annotations

import numpy as np
import pytest

from tfplace.group.vicinity import Vicinity, members
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def plain_region(problem, near, devices, unit, size):
    """All units within reach, by distance: whole rings, of which the last may be cut."""
    rings, seen = [[unit]], {unit}
    while rings[-1]:
        ring = {int(v) for u in rings[-1] for v in near.neighbours(u) if devices[v] == devices[unit]} - seen
        seen |= ring
        rings.append(sorted(ring))
    return rings[:-1]


@pytest.mark.parametrize("seed", range(12))
def test_regions_are_rings_on_one_device(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=50, num_devices=3)
    near = Vicinity(problem)
    devices = rng.integers(0, 3, problem.num_units).astype(np.int32)
    for size in (1, 2, 5, 20, problem.num_units):
        unit = int(rng.integers(problem.num_units))
        found = near.region(devices, unit, size).tolist()
        rings = plain_region(problem, near, devices, unit, size)
        assert len(found) == len({*found}) == min(size, sum(map(len, rings)))
        at = 0
        for ring in rings:
            part = found[at : at + len(ring)]
            assert {*part} <= {*ring}
            assert len(part) == min(len(ring), len(found) - at)
            at += len(part)


def test_neighbours_once_per_edge():
    graph = make_graph(dict.fromkeys("abc", 4), ["a -> b", "a -> c", "b -> c"])
    near = Vicinity(make_problem(graph, make_topology(2)))
    assert [sorted(near.neighbours(u).tolist()) for u in range(3)] == [[1, 2], [0, 2], [0, 1]]
    assert near.size(0) == 1
    assert near.cluster(0, 2).tolist() == [2]


def test_members_of_labels():
    assert [m.tolist() for m in members(np.array([1, 0, 1, 2], np.int32))] == [[1], [0, 2], [3]]
