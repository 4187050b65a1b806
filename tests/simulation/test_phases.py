"""Phases of split steps: which there are, that the kernel and the oracle agree on them, and what they are good for."""

import dataclasses

import numpy as np
import pytest

from tests.simulation.oracle import Oracle
from tests.simulation.varied import random_options, random_variation
from tfplace.core.slices import Slices
from tfplace.errors import InputError, UnknownNameError
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.event import AHEAD, FAILED_BYTES, STRAY
from tfplace.simulation.options import BY_USE, FREE, GPIPE, ONE_F_ONE_B, Options
from tfplace.simulation.phases import GROUPS, find_parts
from tfplace.testing import random_devices, random_problem

CHAINED = (BY_USE, GPIPE, ONE_F_ONE_B)


def split_at_random(rng, problem):
    """The problem with ops in slices and passes at random; what stands once before all of them may read variables."""
    graph, slices = problem.graph, int(rng.integers(1, 5))
    slice_of = rng.integers(-1, slices, graph.num_ops).astype(np.int32)
    slice_of[rng.random(graph.num_ops) < 0.2] = -1
    bases = tuple(f"{rng.choice(['', 'gradient_tape/'])}{name}" for name in graph.op_names)
    split = Slices(tuple([1] * slices), slice_of, bases)
    return dataclasses.replace(problem, graph=dataclasses.replace(graph, slices=split))


def expected_phases(problem, op_device, order):
    """The rules of docs/reference/phases.md, written plainly; None where an order would make no difference."""
    parts = find_parts(problem)
    ops = [v for v in range(problem.graph.num_ops) if not problem.graph.replicable[v]]
    slices, devices = len(problem.graph.slices.sizes), range(problem.num_devices)
    seconds = problem.costs.compute_s

    def load(d, k, backward):
        return sum(float(seconds[v, d]) for v in ops if op_device[v] == d and parts.part[v] == 2 * k + backward)

    def is_stage(d, k, backward):
        total = sum(load(e, k, backward) for e in devices)
        return load(d, k, backward) > 0 and load(d, k, backward) >= STRAY * total

    def place(d, k):
        mine = [v for v in ops if op_device[v] == d and parts.part[v] == 2 * k]
        return sum(float(seconds[v, d]) * int(parts.group[v]) for v in mine) / load(d, k, False)

    if not (parts.part >= 0).any():
        return None
    phases = np.full(problem.graph.num_ops, -1)
    several = False
    for d in devices:
        forward = [k for k in range(slices) if is_stage(d, k, False)]
        backward = [k for k in range(slices) if is_stage(d, k, True)]
        several |= len({*forward, *backward}) > 1
        if not forward:
            continue
        turns = []
        if order != BY_USE:
            ahead = slices
            if order == ONE_F_ONE_B:
                later = [
                    [e for e in devices if is_stage(e, k, False) and (place(e, k), e) >= (place(d, k), d)]
                    for k in forward
                ]
                ahead = max(map(len, later))
            coming, held = [(k, False) for k in forward[1:]], 1
            for k in backward:
                while coming and held < ahead:
                    turns.append(coming.pop(0))
                    held += 1
                turns.append((k, True))
                held -= 1
            turns += coming
        number = {(k, is_back): GROUPS + i for i, (k, is_back) in enumerate(turns)}
        for v in ops:
            if op_device[v] != d:
                continue
            part, group = int(parts.part[v]), int(parts.group[v])
            if part == 2 * forward[0]:
                phases[v] = group
            elif part >= 0:
                phases[v] = number.get((part // 2, bool(part % 2)), -1)
            elif group >= 0:
                phases[v] = max(group - AHEAD, 0)
    return None if order != BY_USE and not several else phases


@pytest.mark.parametrize("order", CHAINED)
@pytest.mark.parametrize("block", range(4))
def test_agrees_with_the_oracle_and_with_the_rules(order, block):
    for seed in range(30 * block, 30 * block + 30):
        rng = np.random.default_rng([seed, 3])
        problem = random_problem(rng, int(rng.integers(2, 30)), int(rng.integers(1, 5)), ties=bool(seed % 2))
        problem, options = split_at_random(rng, problem), Options()
        if seed % 3 == 0:
            problem, options = random_variation(rng, problem), random_options(rng)
        op_device = problem.spread(random_devices(rng, problem))
        simulator = Simulator(problem, dataclasses.replace(options, phase_orders=(order,)))
        named, phases = simulator.phases(op_device)
        expected = expected_phases(problem, op_device, order)
        assert (named == FREE) == (expected is None)
        if expected is not None:
            assert phases.tolist() == expected.tolist()
        oracle = Oracle(problem, op_device, options, expected)
        assert simulator.devices(op_device).step_s == oracle.step_s
        if np.isfinite(oracle.step_s):
            timeline = simulator.timeline(op_device)
            assert timeline.start_s[oracle.ops].tolist() == [oracle.start[v] for v in oracle.ops]
            peaks = [max(size for _, size in row) for row in oracle.memory()]
            assert simulator.devices(op_device).peak_bytes.tolist() == peaks


def test_the_best_order_counts():
    for seed in range(60):
        rng = np.random.default_rng([seed, 4])
        problem = split_at_random(rng, random_problem(rng, int(rng.integers(2, 30)), 3))
        devices = random_devices(rng, problem)
        tried = (FREE, BY_USE, ONE_F_ONE_B)
        keys = [Simulator(problem, Options(phase_orders=(order,))).key(devices) for order in tried]
        simulator = Simulator(problem)
        assert simulator.key(devices) == min(keys) == simulator(devices).key
        assert simulator.key(devices, min(keys)[1]) == min(keys)
        over, step_s = simulator.keys([devices] * 3)
        assert [*zip(over.tolist(), step_s.tolist(), strict=True)] == [min(keys)] * 3


def test_an_order_in_which_ops_wait_for_one_another_is_never_the_best():
    """What it holds when it stops is little, and would seem to fit."""
    stuck = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, 5])
        problem = split_at_random(rng, random_problem(rng, int(rng.integers(10, 30)), 3))
        problem = dataclasses.replace(problem, memory_limit=np.ones_like(problem.memory_limit))
        devices = random_devices(rng, problem)
        over, step_s = Simulator(problem, Options(phase_orders=(ONE_F_ONE_B,))).key(devices)
        stuck += np.isinf(step_s)
        assert np.isfinite(step_s) or over >= FAILED_BYTES
        assert np.isfinite(Simulator(problem).key(devices)[1])
    assert stuck > 5


def test_a_whole_step_has_no_phases():
    problem = random_problem(np.random.default_rng(0), 20, 3)
    op_device = problem.spread(random_devices(np.random.default_rng(0), problem))
    assert Simulator(problem, Options(phase_orders=(GPIPE,))).phases(op_device) == (FREE, None)


def test_an_unknown_order_is_refused():
    with pytest.raises(UnknownNameError):
        Options(phase_orders=("2f2b",))
    with pytest.raises(InputError):
        Options(phase_orders=())
