"""PipeDream's programme against plain recursion over all stages with all replicas."""

import numpy as np
import pytest

from tfplace.schedule.pipeline.replicated import Stage, States, chain_states, replicated_stages


def load(states, begin, end, replicas, bandwidth):
    """Seconds per mini-batch of the stage from one state (-1: from nothing) to another, by the docstring's words."""
    seconds, parameters = states.seconds[end], states.parameter_bytes[end]
    if begin >= 0:
        seconds, parameters = seconds - states.seconds[begin], parameters - states.parameter_bytes[begin]
    found = [(seconds + 4 * (replicas - 1) * parameters / (replicas * bandwidth)) / replicas]
    if begin >= 0:
        found += [2 * states.output_bytes[begin] / (replicas * bandwidth)]
        if end < len(states.seconds) - 1:
            found += [2 * states.output_bytes[end] / (replicas * bandwidth)]
    return max(found)


def ways(states, end, devices):
    """Every list of stages up to a state on exactly so many devices."""
    yield [Stage(end, devices)]
    for begin in np.flatnonzero(states.within[:, end]):
        for replicas in range(1, devices):
            for before in ways(states, int(begin), devices - replicas):
                yield [*before, Stage(end, replicas)]


def bottleneck(states, stages, bandwidth):
    begins = [-1, *(stage.end for stage in stages)]
    return max(load(states, begin, *stage, bandwidth) for begin, stage in zip(begins, stages, strict=False))


def random_states(rng):
    """Sets of a few ops in a random order of inclusion, the last with all of them."""
    ops = int(rng.integers(2, 6))
    masks = sorted({*rng.integers(1, 2**ops, 5).tolist(), 2**ops - 1}, key=int.bit_count)
    member = np.array([[mask >> v & 1 for v in range(ops)] for mask in masks])
    within = np.array([[a != b and a & b == a for b in masks] for a in masks])
    seconds, parameters = member @ rng.random(ops), member @ rng.random(ops)
    return States(seconds, parameters, rng.random(len(masks)) * rng.choice([0.0, 0.3, 1.0]), within)


@pytest.mark.parametrize("seed", range(40))
def test_no_other_stages_have_a_lower_bottleneck(seed):
    rng = np.random.default_rng(seed)
    states, devices, bandwidth = random_states(rng), int(rng.integers(1, 5)), float(rng.choice([1.0, 10.0, np.inf]))
    least = {}
    for stages in ways(states, len(states.seconds) - 1, devices):
        least[len(stages)] = min(least.get(len(stages), np.inf), bottleneck(states, stages, bandwidth))
    plans = replicated_stages(states, devices, bandwidth)
    assert {len(plan.stages): plan.bottleneck_s for plan in plans} == pytest.approx(least)
    assert plans[0].bottleneck_s == pytest.approx(min(least.values()))
    for plan in plans:
        assert bottleneck(states, plan.stages, bandwidth) == pytest.approx(plan.bottleneck_s)
        assert sum(stage.replicas for stage in plan.stages) == devices


def test_convolutions_are_replicated_and_dense_layers_are_not():
    """The plan that made PipeDream known: 15-1 for VGG, where bytes are in the dense layers and seconds before."""
    states = chain_states(np.array([10.0, 10.0, 0.9]), np.array([1.0, 1.0, 1e6]), np.array([10.0, 10.0, 0.0]))
    found_s, stages = replicated_stages(states, 16, 1e3)[0]
    assert stages == (Stage(1, 15), Stage(2, 1))
    assert found_s == pytest.approx((20 + 4 * 14 * 2 / 15e3) / 15)


def test_replicas_can_be_limited():
    states = chain_states(np.ones(4), np.zeros(4), np.zeros(4))
    plans = replicated_stages(states, 4, 1.0, most=2)
    assert max(stage.replicas for plan in plans for stage in plan.stages) == 2
    assert replicated_stages(states, 5, 1.0, most=1) == []
