"""Phases that are given, and those of the critical path: the kernel and the oracle agree on steps with them."""

import dataclasses
import pickle

import numpy as np
import pytest

from tests.simulation.oracle import Oracle
from tests.simulation.test_phases import split_at_random
from tests.simulation.varied import random_options, random_variation
from tfplace.core.control_flow import ARGUMENTS
from tfplace.core.placement import CRITICAL_PATH, FREE
from tfplace.core.stepcost import FAILED_BYTES
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.options import ONE_F_ONE_B, Options
from tfplace.simulation.stretches import STRETCHES, Stretches
from tfplace.testing import random_devices, random_problem
from tfplace.testing.graphs import make_graph

BY_PATH = Options(phase_orders=(CRITICAL_PATH,))


def drawn(seed, *, split):
    """A problem, options and a device for each unit, at random."""
    rng = np.random.default_rng([seed, 5, split])
    problem = random_problem(rng, int(rng.integers(2, 30)), int(rng.integers(1, 5)), ties=bool(seed % 2))
    options = Options()
    if split:
        problem = split_at_random(rng, problem)
    if seed % 3 == 0:
        problem, options = random_variation(rng, problem), random_options(rng)
    return rng, problem, options, random_devices(rng, problem)


def check_agreement(simulator, oracle, unit_device):
    op_device = simulator.problem.spread(unit_device)
    cost = simulator.devices(op_device)
    assert cost.step_s == oracle.step_s
    assert simulator.key(unit_device) == cost.key == simulator.key(unit_device, oracle.step_s)
    if not np.isfinite(oracle.step_s):
        return
    over, step_s = simulator.keys([unit_device] * 3)
    assert [*zip(over.tolist(), step_s.tolist(), strict=True)] == [cost.key] * 3
    if oracle.step_s > 0:
        assert simulator.key(unit_device, 0.9 * oracle.step_s) == (FAILED_BYTES, np.inf)
    timeline = simulator.timeline(op_device)
    assert timeline.start_s[oracle.ops].tolist() == [oracle.start[v] for v in oracle.ops]
    assert cost.peak_bytes.tolist() == [max(size for _, size in row) for row in oracle.memory()]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("block", range(3))
def test_given_phases_agree_with_the_oracle(block, split):
    ended = 0
    for seed in range(30 * block, 30 * block + 30):
        rng, problem, options, devices = drawn(seed, split=split)
        phases = 7 * np.sort(rng.integers(0, 5, problem.graph.num_ops))  # with gaps
        phases[rng.random(len(phases)) < 0.3] = -1
        if seed % 5 == 0:
            rng.shuffle(phases)  # most of these end in ops that wait for one another
        oracle = Oracle(problem, problem.spread(devices), options, phases)
        ended += np.isfinite(oracle.step_s)
        check_agreement(Simulator(problem, options, phases=phases), oracle, devices)
    assert ended > 20


def stretches_of(problem, op_device, options):
    """The rule of docs/reference/phases.md, written plainly; of a step without loops."""
    ranked = Oracle(problem, op_device, dataclasses.replace(options, order="critical_path"))
    phases = np.full(problem.graph.num_ops, -1)
    for d in range(problem.num_devices):
        ops = [v for v in ranked.ops if op_device[v] == d and problem.graph.op_types[v] not in ARGUMENTS]
        ops.sort(key=lambda v: (ranked.start[v], v))
        seconds = [float(problem.costs.compute_s[v, d]) for v in ops]
        number, last = 0, 0
        for i, v in enumerate(ops):
            stretch = min(int(STRETCHES * sum(seconds[:i]) / sum(seconds)), STRETCHES - 1) if sum(seconds) else 0
            number += stretch > last
            last = stretch
            phases[v] = number
    return phases


@pytest.mark.parametrize("block", range(3))
def test_the_critical_path_agrees_with_the_oracle_and_with_the_rule(block):
    for seed in range(30 * block, 30 * block + 30):
        _, problem, options, devices = drawn(seed, split=True)
        if not (problem.graph.slices.slice_of >= 0).any():
            continue
        op_device = problem.spread(devices)
        simulator = Simulator(problem, dataclasses.replace(options, phase_orders=(CRITICAL_PATH,)))
        order, phases = simulator.phases(op_device)
        expected = stretches_of(problem, op_device, options)
        assert order == CRITICAL_PATH
        assert phases.tolist() == expected.tolist()
        check_agreement(simulator, Oracle(problem, op_device, options, expected), devices)


def test_the_critical_path_counts_where_it_is_better():
    better = 0
    for seed in range(60):
        _, problem, _, devices = drawn(3 * seed + 1, split=True)
        keys = {one: Simulator(problem, Options(phase_orders=(one,))).key(devices) for one in (FREE, CRITICAL_PATH)}
        both = Simulator(problem, Options(phase_orders=(FREE, CRITICAL_PATH)))
        order, phases = both.phases(problem.spread(devices))
        assert both.key(devices) == both(devices).key == min(keys.values())
        assert order == (CRITICAL_PATH if keys[CRITICAL_PATH] < keys[FREE] else FREE)
        assert (phases is None) == (order == FREE)
        better += order == CRITICAL_PATH
    assert better > 5


def test_a_simulator_with_phases_keeps_them_in_another_process():
    _, problem, _, devices = drawn(1, split=True)
    phases = np.arange(problem.graph.num_ops)
    simulator = Simulator(problem, Options(phase_orders=(ONE_F_ONE_B,)), phases=phases)
    assert pickle.loads(pickle.dumps(simulator)).key(devices) == simulator.key(devices)
    assert simulator.phases(problem.spread(devices))[1].tolist() == phases.tolist()


def test_a_whole_step_has_no_critical_path():
    _, problem, _, devices = drawn(1, split=False)
    assert Simulator(problem, BY_PATH).phases(problem.spread(devices)) == (FREE, None)


def test_all_of_a_loop_on_a_device_is_in_one_stretch():
    names = ["x", "a", "enter", "merge", "exit", "b", "c", "beside"]
    types = {"x": "Placeholder", "enter": "Enter", "merge": "Merge", "exit": "Exit"}
    edges = ["x -> a", "a -> enter", "enter -> merge", "merge -> exit", "exit -> b", "b -> c", "x -> beside"]
    graph = make_graph(dict.fromkeys(names, 4), edges, types=types)
    start_s = np.array([0.0, 0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 3.0])  # beside runs in between
    found = Stretches(graph)(np.zeros(8, np.int32), start_s, np.ones((8, 1)))
    assert dict(zip(names, found.tolist(), strict=True)) == {
        **{"x": -1, "a": 0, "b": 2, "c": 3},
        **dict.fromkeys(["enter", "merge", "beside", "exit"], 1),
    }
