"""What MirroredStrategy would take, beside placements of split steps."""

import dataclasses

import pytest

from tests.transforms.split_steps import step
from tfplace.comparison.comparison import compare_placers
from tfplace.comparison.comparison_table import comparison_text
from tfplace.errors import InputError
from tfplace.search.mirrored import MIRRORED, mirrored_cost
from tfplace.search.place import search_placement
from tfplace.testing.problems import make_problem, make_topology

MB = 2**20
BANDWIDTH, LATENCY = 10e9, 10e-6


def problem(slices, devices, loss_s=1e-6, weights=(40 * MB, 24 * MB), **seconds):
    """Devices that take hardly any time to copy and add, with a host beside them; a loss takes seconds."""
    types = ["CPU"] + ["GPU"] * devices
    topology = make_topology(devices + 1, types=types, speed=1e4, bandwidth=BANDWIDTH, latency=LATENCY)
    return make_problem(step(slices, weights), topology, {f"slice{k}/loss": loss_s for k in range(slices)} | seconds)


@pytest.mark.parametrize(("slices", "devices"), [(2, 2), (4, 4), (4, 2)])
def test_gradients_go_round_a_ring_of_the_devices(slices, devices):
    cost = mirrored_cost(problem(slices, devices))
    ring = 2 * (devices - 1) / devices * 64 * MB
    assert cost.step_s == pytest.approx(ring / BANDWIDTH + 2 * (devices - 1) * LATENCY, rel=0.05)
    assert cost.moved_bytes == pytest.approx(devices * ring, rel=1e-3)


def test_the_exchange_waits_for_the_last_gradient():
    last = {f"slice{k}/gradient1": 2e-2 for k in range(4)}
    at_work, alone = (mirrored_cost(problem(4, 4, **seconds)).step_s for seconds in (last, {}))
    assert at_work == pytest.approx(2e-2 + alone, rel=0.01)


def test_every_device_holds_weights_slots_gradients_and_a_buffer():
    peak = mirrored_cost(problem(4, 4)).peak_bytes
    assert peak[0] < MB
    assert (peak[1:] >= (2 + 2) * 64 * MB).all()
    assert (peak[1:] <= (2 + 2.5) * 64 * MB).all()  # and a chunk that is sent while another is added


def test_every_device_takes_the_seconds_of_all_updates():
    cost = mirrored_cost(problem(4, 4, 4.0, update0=2.0, moved1=1.0))
    assert cost.compute_s == pytest.approx([0, 7, 7, 7, 7], abs=0.01)


def test_split_steps_have_it_among_their_baselines():
    split = problem(2, 2)
    assert MIRRORED in search_placement(split, placer="heft", budget=5).baselines
    assert MIRRORED not in search_placement(split, placer="heft", budget=5, baselines=["heft"]).baselines
    whole = dataclasses.replace(split, graph=dataclasses.replace(split.graph, slices=None))
    assert MIRRORED not in search_placement(whole, placer="heft", budget=5).baselines


def test_comparisons_of_split_steps_tell_it():
    compared = compare_placers(problem(2, 2), ["heft"], budget="5 evaluations", seeds=1)
    assert MIRRORED in comparison_text(compared)


def test_a_whole_step_is_refused():
    whole = problem(2, 2)
    with pytest.raises(InputError):
        mirrored_cost(dataclasses.replace(whole, graph=dataclasses.replace(whole.graph, slices=None)))
