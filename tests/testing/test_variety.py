import numpy as np

from tests.search.test_place import two_towers
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem
from tfplace.testing.variety import variety


def test_every_kind_is_there_and_every_placement_is_allowed():
    problem = random_problem(np.random.default_rng(11))
    named = variety(problem, randoms=4, searches=(20,))
    assert any(name.startswith("single ") for name in named)
    for devices in named.values():
        problem.expand(devices)


def test_no_two_are_alike_and_the_seed_decides():
    problem = two_towers()
    named, again = (variety(problem, searches=(20,), seed=5) for _ in range(2))
    assert len({devices.tobytes() for devices in named.values()}) == len(named)
    assert {k: v.tolist() for k, v in named.items()} == {k: v.tolist() for k, v in again.items()}


def test_a_search_is_no_worse_than_the_single_devices():
    problem = two_towers(64 * 2**20)
    simulator = Simulator(problem)
    times = {name: simulator(devices).step_s for name, devices in variety(problem, searches=(200,)).items()}
    singles = [s for name, s in times.items() if name.startswith("single ")]
    found = [s for name, s in times.items() if name.startswith("search ")]
    assert min(found, default=min(singles)) <= min(singles)
    assert np.all(np.isfinite(list(times.values())))
