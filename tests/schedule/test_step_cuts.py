"""Cuts of a step into stages against all of them."""

import itertools

import numpy as np
import pytest

from tfplace.schedule.pipeline.line import Line
from tfplace.schedule.pipeline.step_cuts import few_cuts, straight_cuts
from tfplace.testing import make_topology


def random_line(rng, count, devices):
    sent = np.zeros((2, 2, count + 1))
    sent[:, :, 1:count] = rng.integers(0, 4, (2, 2, count - 1))
    seconds = rng.integers(1, 5, (count, 1)) * rng.choice([1.0, 1.0, 2.0], devices)
    kept, stashed = rng.integers(0, 5, (2, count)).astype(float)
    return Line(np.arange(count, dtype=np.int32), seconds, sent[0], sent[1], kept, stashed, kept)


def every_cut(count, order):
    for number in range(1, len(order) + 1):
        for ends in itertools.combinations(range(1, count), number - 1):
            for devices in itertools.combinations(order, number):
                yield (0, *ends, count), devices


def step_s(line, topology, cut, slices):
    begin, devices = cut
    total, longest = 0.0, 0.0
    for i, d in enumerate(devices):
        parts = [line.seconds[begin[i] : begin[i + 1], d].sum()]
        if i + 1 < len(devices):
            e, cut = devices[i + 1], begin[i + 1]
            for way, (a, b) in enumerate(((d, e), (e, d))):
                link = line.messages[way, cut] * topology.latency_s[a, b]
                parts.append(link + line.size_bytes[way, cut] / topology.bandwidth[a, b])
        total, longest = total + sum(parts), max(longest, *parts)
    return total + (slices - 1) * longest


def fits(line, cut, slices, limit, all_held):
    begin, devices = cut
    for i, d in enumerate(devices):
        mine = slice(begin[i], begin[i + 1])
        held = slices if all_held else min(slices, len(devices) - i)
        if line.kept_bytes[mine].sum() + held * line.stashed_bytes[mine].sum() > limit[d]:
            return False
    return True


@pytest.mark.parametrize("seed", range(30))
def test_the_first_cut_is_near_the_shortest_step_and_all_fit(seed):
    rng = np.random.default_rng(seed)
    devices, count, slices = 3, int(rng.integers(2, 7)), int(rng.integers(1, 6))
    pairs = {pair: float(rng.choice([1.0, 4.0])) for pair in itertools.permutations(range(devices), 2)}
    topology = make_topology(devices, bandwidth=pairs, latency=0.25)
    line, order = random_line(rng, count, devices), rng.permutation(devices).astype(np.int32)
    limit, all_held = rng.integers(5, 60, devices), bool(rng.integers(2))
    ways = [
        step_s(line, topology, cut, slices)
        for cut in every_cut(count, order.tolist())
        if fits(line, cut, slices, limit, all_held)
    ]
    cuts = straight_cuts(line, topology, order, slices, limit, all_held=all_held)
    assert bool(ways) == bool(cuts)
    for cut in cuts:
        stages = cut.begin, cut.devices.tolist()
        assert fits(line, stages, slices, limit, all_held)
        assert cut.step_s == pytest.approx(step_s(line, topology, stages, slices))
    if ways:
        assert min(ways) - 1e-9 <= cuts[0].step_s <= 1.02 * min(ways) + 1e-9


def test_later_stages_hold_fewer_slices():
    """Three slices of 10 bytes each in every stretch: all of them, or as many as stages are left."""
    line = random_line(np.random.default_rng(0), 3, 3)
    line = line._replace(seconds=np.ones((3, 3)), kept_bytes=np.zeros(3), stashed_bytes=np.full(3, 10.0))
    topology, order = make_topology(3, bandwidth=1e9), np.arange(3, dtype=np.int32)

    def stages(limit, all_held):
        cuts = straight_cuts(line, topology, order, 3, np.array(limit), all_held=all_held)
        return {len(cut.devices) for cut in cuts}

    assert stages([30, 20, 10], False) == {1, 2, 3}
    assert stages([29, 20, 10], False) == {2}
    assert stages([30, 20, 10], True) == set()
    assert stages([30, 30, 30], True) == {3}


def test_few_cuts_are_of_all_numbers_of_stages():
    line = random_line(np.random.default_rng(1), 6, 3)
    cuts = straight_cuts(line, make_topology(3), np.arange(3, dtype=np.int32), 4, np.full(3, 10**6), all_held=True)
    assert {len(cut.devices) for cut in few_cuts(cuts, 6)} == {1, 2, 3}
    assert min(cuts, key=lambda cut: cut.longest_s).longest_s == min(cut.longest_s for cut in few_cuts(cuts, 6))
    assert few_cuts(cuts, 1) == cuts[:1]
