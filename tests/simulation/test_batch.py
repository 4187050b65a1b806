"""Many placements at once, and giving up on long steps: the same answers as one by one."""

import numpy as np
import pytest
from hypothesis import given, settings

from tests.simulation.varied import random_options, random_variation, varied_problems
from tfplace.core.evaluator import Evaluator
from tfplace.core.stepcost import FAILED_BYTES
from tfplace.errors import PlacementError
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import DEFAULT, Options
from tfplace.testing import random_devices, random_problem


def batch_of(rng, problem, count):
    return np.stack([random_devices(rng, problem) for _ in range(count)])


@pytest.mark.parametrize("options", [DEFAULT, Options(order="lifo", parallel=2)])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_batch_is_the_same_as_one_by_one(options, count, threads):
    rng = np.random.default_rng(count)
    problem = random_problem(rng, 60, 4, ties=False, tight=True)
    sim = Simulator(problem, options, threads=threads)
    batch = np.array([random_devices(rng, problem) for _ in range(count)]).reshape(count, problem.num_units)
    over, step_s = sim.keys(batch)
    assert list(zip(over.tolist(), step_s.tolist(), strict=True)) == [sim.key(row) for row in batch]
    backwards = sim.keys(batch[::-1])
    assert backwards[0].tolist() == over.tolist()[::-1]
    assert backwards[1].tolist() == step_s.tolist()[::-1]
    assert sim.calls == 3 * count
    sim.close()
    sim.close()
    assert sim.keys(batch)[1].tolist() == step_s.tolist()
    sim.close()


def test_a_batch_has_a_row_for_every_placement():
    problem = random_problem(np.random.default_rng(0), 10, 2)
    with pytest.raises(PlacementError, match="shape \\(3, 2\\); expected shape \\(placements, 5"):
        Simulator(problem).keys(np.zeros((3, 2)))


def test_a_simulator_is_an_evaluator():
    def source_of(evaluator: Evaluator) -> str:
        return evaluator.source

    sim = Simulator(random_problem(np.random.default_rng(0)))
    assert source_of(sim) == sim(np.zeros(sim.problem.num_units)).source == "simulated"


def check_limits(problem, unit_device, options):
    sim = Simulator(problem, options)
    over, step_s = sim.key(unit_device)
    for factor in (2.0, 1 + 1e-6, 1.0):
        assert sim.key(unit_device, step_s * factor) == (over, step_s)
    for factor in (1 - 1e-6, 0.9, 0.5, 0.0):
        expected = (FAILED_BYTES, np.inf) if step_s > 0 else (over, step_s)
        assert sim.key(unit_device, step_s * factor) == expected
    assert sim.key(unit_device) == (over, step_s)


@settings(max_examples=60, deadline=None)
@given(varied_problems())
def test_a_limit_gives_up_on_longer_steps_only(varied):
    check_limits(*varied)


def test_a_limit_gives_up_on_longer_steps_of_larger_problems_only():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        problem = random_variation(rng, random_problem(rng, 150, 4, ties=bool(seed % 2)))
        check_limits(problem, random_devices(rng, problem), random_options(rng) if seed % 3 else DEFAULT)


def test_a_batch_takes_a_limit():
    rng = np.random.default_rng(1)
    problem = random_problem(rng, 100, 3, ties=False)
    sim = Simulator(problem, threads=2)
    batch = batch_of(rng, problem, 20)
    step_s = sim.keys(batch)[1]
    limit = float(np.median(step_s))
    over, limited = sim.keys(batch, limit)
    np.testing.assert_array_equal(limited, np.where(step_s <= limit, step_s, np.inf))
    np.testing.assert_array_equal(over == FAILED_BYTES, step_s > limit)
    sim.close()


def test_an_abandoned_placement_loses_against_any_other():
    problem = random_problem(np.random.default_rng(2), 30, 3, ties=False)
    sim = Simulator(problem)
    devices = random_devices(np.random.default_rng(2), problem)
    over, step_s = sim.key(devices)
    assert sim.key(devices, step_s / 2) > (over + 2**50, step_s)
