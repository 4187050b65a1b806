"""The portfolio is at least as good as each of its members, and stops when nothing better exists."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from tfplace.placers.auto import MEMBERS, Auto
from tfplace.placers.base import BudgetSpentError
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.study import Search
from tfplace.simulate.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem


def auto(problem, budget, seed=0):
    search = Search(problem, Budget.parse(budget), seed)
    study = search.study("auto")
    with contextlib.suppress(BudgetSpentError):
        Auto().place(study)
    return search, study


@pytest.mark.parametrize("seed", range(5))
def test_never_worse_than_a_member(seed):
    problem = random_problem(np.random.default_rng(seed), 60, 4, unit=1e-3, tight=seed % 2 == 0)
    _, study = auto(problem, 300)
    simulator = Simulator(problem)
    for name in MEMBERS:
        alone = Search(problem, Budget(evaluations=50), seed).study(name)
        assert study.best_key <= simulator.key(PLACERS[name]().place(alone))


def test_longer_budgets_are_used_and_help():
    problem = random_problem(np.random.default_rng(7), 150, 4, unit=1e-3, ties=False)
    short, long = auto(problem, 50)[1], auto(problem, 4000)[1]
    assert long.best_key < short.best_key


def test_history_says_which_stage_earned_what():
    search, _ = auto(random_problem(np.random.default_rng(7), 150, 4, unit=1e-3, ties=False), 2000)
    stages = [i.stage for i in search.history]
    assert stages[0] == "single"
    assert any(stage.startswith("local_search from") for stage in stages)
    keys = [i.key for i in search.history]
    assert keys == sorted(keys, reverse=True)


def test_a_time_budget_is_kept():
    search, study = auto(random_problem(np.random.default_rng(7), 200, 4, ties=False), "0.5s")
    assert 0.4 < search.seconds < 3.0
    assert study.best is not None


def test_stops_at_the_bound():
    """A chain cannot be quicker than on one device."""
    graph = make_graph({f"x{i}": 8 for i in range(30)}, [f"x{i} -> x{i + 1}" for i in range(29)])
    search, study = auto(make_problem(graph, make_topology(3)), 10**7)
    assert search.evaluations < 100
    assert len(set(study.best.tolist())) == 1


def test_spreads_branches():
    """Six modules of four branches each: four devices, cheap links, so well under the time of one device."""
    ops, edges = {"in": 1000}, []
    last = "in"
    for m in range(6):
        for branch in range(4):
            ops |= {f"m{m}/b{branch}/x": 1000, f"m{m}/b{branch}/y": 1000}
            edges += [f"{last} -> m{m}/b{branch}/x", f"m{m}/b{branch}/x -> m{m}/b{branch}/y"]
        ops[f"m{m}/join"] = 1000
        edges += [f"m{m}/b{branch}/y -> m{m}/join" for branch in range(4)]
        last = f"m{m}/join"
    graph = make_graph(ops, edges)
    problem = make_problem(graph, make_topology(4, bandwidth=1e4, latency=0.0), 1.0)
    _, study = auto(problem, 20_000)
    alone = graph.num_ops  # a second each
    assert study.best_key[1] < 0.45 * alone
