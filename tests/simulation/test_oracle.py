"""The kernel and the plain simulator in oracle.py agree on every op, transfer and byte, by any rules."""

import numpy as np
import pytest
from hypothesis import given, settings

from tests.simulation.oracle import Oracle
from tests.simulation.varied import random_options, random_variation, varied_problems
from tfplace.simulation import event
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.event import make_flags
from tfplace.simulation.options import DEFAULT
from tfplace.simulation.program import compile_problem
from tfplace.testing import random_devices, random_problem
from tfplace.testing.strategies import placed_problems


def check_agreement(problem, unit_device, options=DEFAULT):
    op_device = problem.spread(unit_device)
    oracle = Oracle(problem, op_device, options)
    simulator = Simulator(problem, options)
    cost = simulator(unit_device)
    timeline = simulator.timeline(op_device)

    assert timeline.start_s[oracle.ops].tolist() == [oracle.start[v] for v in oracle.ops]
    assert timeline.finish_s[oracle.ops].tolist() == [oracle.finish[v] for v in oracle.ops]
    names = problem.graph.op_names
    got = zip(
        timeline.moved,
        timeline.moved_src.tolist(),
        timeline.moved_dst.tolist(),
        timeline.moved_start_s.tolist(),
        timeline.moved_finish_s.tolist(),
        timeline.moved_bytes.tolist(),
        strict=True,
    )
    moved = oracle.moved
    assert list(got) == [
        (names[x.message.op], x.src, x.dst, x.start, x.end, n) for x, n in zip(oracle.transfers, moved, strict=True)
    ]
    memory = oracle.memory()
    for d in oracle.devices:
        mine = timeline.memory_device == d
        seen = list(zip(timeline.memory_s[mine].tolist(), timeline.memory_bytes[mine].tolist(), strict=True))
        assert seen == memory[d]
    assert cost.step_s == oracle.step_s
    assert cost.moved_bytes == sum(moved)
    assert cost.peak_bytes.tolist() == [max(size for _, size in row) for row in memory]
    np.testing.assert_allclose(cost.compute_s, oracle.compute_s, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cost.transfer_s, oracle.transfer_s, rtol=1e-9, atol=1e-9)
    busy = np.array(oracle.compute_s) + oracle.work_s
    np.testing.assert_allclose(cost.idle_s, oracle.step_s - busy, rtol=1e-9, atol=1e-9)
    assert simulator.key(unit_device) == cost.key == simulator.devices(op_device).key
    assert simulator.key(unit_device, cost.step_s) == cost.key
    assert (np.diff(timeline.memory_s) >= 0).all()


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("block", range(10))
def test_agrees_with_the_oracle_on_seeded_problems(block, ties):
    for seed in range(50 * block, 50 * block + 50):
        rng = np.random.default_rng([seed, ties])
        problem = random_problem(rng, int(rng.integers(1, 30)), int(rng.integers(1, 6)), ties=ties)
        check_agreement(problem, random_devices(rng, problem))


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("block", range(3))
def test_agrees_with_the_oracle_on_seeded_problems_and_options(block, ties):
    for seed in range(100 * block, 100 * block + 100):
        rng = np.random.default_rng([seed, ties, 1])
        problem = random_problem(rng, int(rng.integers(1, 30)), int(rng.integers(1, 6)), ties=ties)
        problem = random_variation(rng, problem)
        check_agreement(problem, random_devices(rng, problem), random_options(rng))


@pytest.mark.parametrize("block", range(4))
def test_agrees_with_the_oracle_on_the_default_options_with_overheads(block):
    for seed in range(50 * block, 50 * block + 50):
        rng = np.random.default_rng([seed, 2])
        problem = random_problem(rng, int(rng.integers(1, 30)), int(rng.integers(1, 6)), ties=bool(seed % 2))
        check_agreement(random_variation(rng, problem), random_devices(rng, problem))


def test_the_default_options_have_machine_code_of_their_own():
    rng = np.random.default_rng(0)
    problem = random_problem(rng)
    assert make_flags(compile_problem(problem), DEFAULT) == event.PLAIN
    assert make_flags(compile_problem(random_variation(rng, problem)), DEFAULT) == event.WORKING


@settings(max_examples=60, deadline=None)
@given(placed_problems())
def test_agrees_with_the_oracle_on_any_problem(placed):
    check_agreement(*placed)


@settings(max_examples=60, deadline=None)
@given(varied_problems())
def test_agrees_with_the_oracle_on_any_problem_and_options(varied):
    check_agreement(*varied)
