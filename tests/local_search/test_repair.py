"""Room for what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.searching import context_of
from tfplace.learned.policies import gdp, placeto
from tfplace.local_search.repair import make_room, repair
from tfplace.registry import PLACERS
from tfplace.testing import make_graph, make_problem, make_topology, random_devices, random_problem


def training(layers=30, devices=3, spare=1.5):
    """Each layer's result of 10 bytes is kept for its gradient; devices have so many times their share of all."""
    names = [f"layer{i}" for i in range(layers)]
    gradients = [f"gradient{i}" for i in reversed(range(layers))]
    chain = [f"{a} -> {b}" for a, b in zip([*names, *gradients], [*names[1:], *gradients], strict=False)]
    kept = [f"layer{i} -> gradient{i}" for i in range(layers - 1)]
    graph = make_graph(dict.fromkeys(names, 10) | dict.fromkeys(gradients, 10), chain + kept)
    memory = int(spare * 10 * layers / devices)
    topology = make_topology(devices, memory=memory, bandwidth=1e6, latency=1e-5)
    return make_problem(graph, topology, 1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_what_fits_is_left_where_it_is(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 30, 3)
    devices = random_devices(rng, problem)
    np.testing.assert_array_equal(repair(context_of(problem), devices), devices)


def test_only_what_finds_no_room_is_moved():
    problem = training(spare=2.0)
    context = context_of(problem)
    alone = np.zeros(problem.num_units, np.int32)
    assert context.key(alone)[0] > 0
    repaired = repair(context, alone)
    assert context.key(repaired)[0] == 0
    assert 0.2 < (repaired != alone).mean() < 0.6


@pytest.mark.parametrize("seed", range(20))
def test_units_stay_where_they_may_be(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 30, 3, tight=True)
    repaired = repair(context_of(problem), random_devices(rng, problem))
    assert problem.allowed[np.arange(problem.num_units), repaired].all()


def test_nothing_is_repaired_where_something_fits():
    problem = training(spare=4.0)
    context = context_of(problem)
    context.key(np.zeros(problem.num_units, np.int32))
    make_room(context, 8)
    assert context.evaluations == 1


@pytest.mark.parametrize(
    ("name", "policy", "options"),
    [("placeto", placeto, {"moves": 0}), pytest.param("gdp", gdp, {}, marks=pytest.mark.tensorflow)],
)
def test_a_policy_that_learned_where_memory_is_ample_fits_where_it_is_not(name, policy, options, monkeypatch):
    problem = training(40)
    context = context_of(problem)
    PLACERS[name](**options).place(context)
    assert context.best_key[0] == 0
    monkeypatch.setattr(policy, "make_room", lambda *_: None)
    context = context_of(problem)
    PLACERS[name](**options).place(context)
    assert context.best_key[0] > 0, "there was room already, so this says nothing"
