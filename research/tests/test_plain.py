"""The simulator that benchmarks compare with gives the same keys."""

import numpy as np
from hypothesis import given, settings

from research.benchmarks.plain_simulator import PlainSimulator
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_devices, random_problem
from tfplace.testing.strategies import placed_problems


def test_the_plain_simulator_gives_the_same_keys():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        problem = random_problem(
            rng, int(rng.integers(1, 60)), int(rng.integers(1, 6)), ties=bool(seed % 2), tight=True
        )
        devices = random_devices(rng, problem)
        assert PlainSimulator(problem).key(devices) == Simulator(problem).key(devices)


@settings(max_examples=100, deadline=None)
@given(placed_problems())
def test_the_plain_simulator_gives_the_same_keys_on_any_problem(placed):
    problem, devices = placed
    assert PlainSimulator(problem).key(devices) == Simulator(problem).key(devices)
