"""The compiled draws against ones written plainly; regions by breadth-first search likewise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.group.test_unit_sets import unrolled
from tests.local_search.plain_moves import PlainMoves
from tfplace.core.by_address import ByAddress
from tfplace.core.kernels import passing_kernel
from tfplace.group.vicinity import Vicinity
from tfplace.local_search.move_kernel import Lists, around
from tfplace.local_search.moves import Moves
from tfplace.search.budget import Budget
from tfplace.search.search import Search
from tfplace.testing import make_problem, make_topology, random_problem


def context_of(problem, seed):
    return Search(problem, Budget(evaluations=10_000), seed).context("x")


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("seed", range(8))
def test_draws_are_those_of_a_plain_search(seed, count):
    """The same moves of the same random numbers, and as many critical paths, on the way of a search."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=60, num_devices=2 + seed % 3) if seed % 2 else unrolled_problem(seed)
    plain, compiled = PlainMoves(context_of(problem, seed)), Moves(context_of(problem, seed))
    devices = problem.allowed.argmax(axis=1).astype(np.int32)
    for step in range(60):
        plain.done = compiled.done = step / 60
        wanted, found = plain.draw_all(devices, count), compiled.draw(devices, count)
        assert len(found) == len(wanted)
        for move, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(move.units, other.units)
            np.testing.assert_array_equal(move.devices, np.broadcast_to(other.devices, len(other.units)))
        if found and step % 3:
            devices = devices.copy()
            devices[found[-1].units] = found[-1].devices
    assert compiled.context.evaluations == plain.context.evaluations > 1
    assert compiled.context.rng.bit_generator.state == plain.context.rng.bit_generator.state


def unrolled_problem(seed):
    return make_problem(unrolled(3, 6), make_topology(2 + seed // 2), 1.0)


def plain_region(neighbours, devices, unit):
    """All units within reach, by distance: whole rings, of which the last may be cut."""
    rings, seen = [[unit]], {unit}
    while rings[-1]:
        ring = {int(v) for u in rings[-1] for v in neighbours[u] if devices[v] == devices[unit]} - seen
        seen |= ring
        rings.append(sorted(ring))
    return rings[:-1]


@passing_kernel
def around_one(near, devices, unit, seen, out):
    return around(near, devices, unit, seen, out)


@pytest.mark.parametrize("seed", range(12))
def test_regions_are_rings_on_one_device(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, num_ops=50, num_devices=3)
    near = Vicinity(problem)
    neighbours = np.split(near.near, near.first[1:-1])
    seen = np.zeros(problem.num_units, np.bool_)
    devices = rng.integers(0, 3, problem.num_units).astype(np.int32)
    for size in (1, 2, 5, 20, problem.num_units):
        unit = int(rng.integers(problem.num_units))
        out = np.zeros(min(size, problem.num_units), np.int32)
        found = out[: around_one(ByAddress(Lists(near.first, near.near)), devices, unit, seen, out)].tolist()
        assert not seen.any()
        rings = plain_region(neighbours, devices, unit)
        assert len(found) == len({*found}) == min(size, sum(map(len, rings)))
        at = 0
        for ring in rings:
            part = found[at : at + len(ring)]
            assert {*part} <= {*ring}
            assert len(part) == min(len(ring), len(found) - at)
            at += len(part)
