"""What every policy promises beyond what placers do; goldens; problems whose answer is known."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from tfplace.learning.settings import TrainSettings
from tfplace.policies.hierarchical import Hierarchical, HierarchicalSettings
from tfplace.policies.post import PolicyGradient, Post, PostCrossEntropy, PostPpo, PostSettings
from tfplace.policies.seq2seq import Seq2Seq, Seq2SeqSettings
from tfplace.search.budget import Budget
from tfplace.search.rundir import RunDirectory
from tfplace.search.study import Search
from tfplace.simulate.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem

SMALL = Seq2SeqSettings(hidden=16, embedding=4)
QUICK = dataclasses.replace(SMALL, train=TrainSettings(rate=0.01, pessimistic=False))
HIERARCHY = HierarchicalSettings(
    groups=8, hidden=16, embedding=4, train=TrainSettings(batch=16, rate=0.003, pessimistic=False)
)
POLICIES = {
    "hierarchical": lambda starts=(): Hierarchical(starts, HIERARCHY),
    "policy_gradient": PolicyGradient,
    "post": Post,
    "post_ce": PostCrossEntropy,
    "post_ppo": PostPpo,
    "seq2seq": lambda starts=(): Seq2Seq(starts, QUICK),
}

everyone = pytest.mark.parametrize("name", POLICIES)


def planted(chains=4, length=4):
    """As many chains as devices, that exchange nothing: each belongs on a device of its own."""
    names = [[f"chain{c}/op{i}" for i in range(length)] for c in range(chains)]
    edges = [f"{a} -> {b}" for chain in names for a, b in itertools.pairwise(chain)]
    graph = make_graph({name: 1000 for chain in names for name in chain}, edges)
    return make_problem(graph, make_topology(chains, bandwidth=1e3, latency=1.0), seconds=1.0)


@everyone
def test_a_planted_problem_is_solved_to_its_optimum(name):
    """Two chains on two devices, of 2 ** 8 placements of which two are best."""
    problem = planted(2)
    best_s = problem.unit_seconds[:, 0].sum() / 2
    search = Search(problem, Budget(evaluations=1500), seed=0)
    devices = search.run(POLICIES[name](), name)
    assert search.best_key == (0, pytest.approx(best_s))
    assert Simulator(problem).key(devices) == search.best_key


@everyone
def test_what_is_drawn_gets_better(name):
    problem = planted(2)
    logged = []
    search = Search(problem, Budget(evaluations=1500), seed=1, logged=lambda n, metrics: logged.append(metrics))
    search.run(POLICIES[name](), name)
    first, last = (np.mean([m["reward"] for m in part]) for part in (logged[:5], logged[-5:]))
    assert last > first + 0.02
    assert all(0 <= m["failed"] <= 1 and m["step_s"] > 0 for m in logged)


@everyone
def test_a_run_that_was_cut_short_ends_as_one_that_was_not(name, tmp_path):
    problem = random_problem(np.random.default_rng(4), num_ops=25, num_devices=3, unit=1e-3)

    class Ends(Simulator):
        last = 10**9

        def keys(self, unit_devices, limit_s=np.inf):
            if self.calls + len(unit_devices) > self.last:
                raise EndError
            return super().keys(unit_devices, limit_s)

    def run(path, last=10**9):
        evaluator = Ends(problem)
        evaluator.last = last
        with RunDirectory(path, {}) as directory, contextlib.suppress(EndError):
            search = Search(problem, Budget(evaluations=400), 3, evaluator=evaluator, run=directory)
            search.run(POLICIES[name](), name)
            return search, evaluator.calls
        return None

    whole, asked = run(tmp_path / "whole")
    run(tmp_path / "cut", last=220)
    again, asked_again = run(tmp_path / "cut")
    assert asked == 400 and asked_again < 200
    assert again.best_key == whole.best_key
    np.testing.assert_array_equal(again.best, whole.best)
    for file in ("improvements.jsonl", "metrics.jsonl"):
        one, other = (facts(tmp_path / part / file) for part in ("cut", "whole"))
        assert [line.keys() for line in one] == [line.keys() for line in other]
        for a, b in zip(one, other, strict=True):
            assert a == pytest.approx(b, rel=1e-4, nan_ok=True)


class EndError(Exception):
    pass


def facts(path):
    return [
        {k: v for k, v in json.loads(line).items() if isinstance(v, int | float) and k != "seconds"}
        for line in path.read_text().splitlines()
    ]


@everyone
def test_a_start_is_leant_towards(name):
    """From the optimum nothing worse is answered, and most of what is drawn at first is close to it."""
    problem = planted(4)
    start = np.repeat(np.arange(4), 4).astype(np.int32)[: problem.num_units]
    logged = []
    search = Search(problem, Budget(evaluations=40), seed=0, logged=lambda n, metrics: logged.append(metrics))
    search.run(POLICIES[name](starts=[start[::-1].copy(), start]), name)
    assert search.best_key <= Simulator(problem).key(start)
    blind = Search(problem, Budget(evaluations=40), seed=0, logged=lambda n, metrics: logged.append(metrics))
    blind.run(POLICIES[name](), name)
    assert logged[0]["reward"] > logged[-1]["reward"]


@everyone
def test_large_problems_are_placed_in_groups(name):
    problem = random_problem(np.random.default_rng(1), num_ops=300, num_devices=3, unit=1e-3)
    assert problem.num_units > 30
    placer = POLICIES[name]()
    placer.settings = dataclasses.replace(placer.settings, groups=20)
    devices = Search(problem, Budget(evaluations=30), seed=0).run(placer, name)
    problem.expand(devices)


GOLDENS = Path(__file__).parent / "goldens.json"
"""Rewards of the first updates; `python tests/policies/regenerate.py` writes them anew."""


def golden_run(name):
    """[N] mean rewards of a short training."""
    problem = random_problem(np.random.default_rng(7), num_ops=30, num_devices=3, unit=1e-3)
    logged = []
    search = Search(
        problem, Budget(evaluations=160), seed=5, logged=lambda n, metrics: logged.append(metrics["reward"])
    )
    search.run(POLICIES[name](), name)
    return logged


@everyone
def test_goldens(name):
    np.testing.assert_allclose(golden_run(name), json.loads(GOLDENS.read_text())[name], rtol=1e-4)


@pytest.mark.parametrize("settings", [HierarchicalSettings.published(), HierarchicalSettings.shipped()])
def test_the_published_settings_run(settings):
    problem = planted(2)
    settings = dataclasses.replace(settings, hidden=16)
    search = Search(problem, Budget(evaluations=60), seed=0)
    problem.expand(search.run(Hierarchical(settings=settings), "x"))


def test_several_groupings_an_update():
    settings = dataclasses.replace(HIERARCHY, groupings=2)
    search = Search(planted(2), Budget(evaluations=1500), seed=0)
    search.run(Hierarchical(settings=settings), "x")
    assert search.best_key[1] == pytest.approx(planted(2).unit_seconds[:, 0].sum() / 2)


def test_the_rate_falls_as_told():
    settings = TrainSettings(rate=0.1, cool_after=400, cool_every=50, cool_by=0.5)
    assert [settings.rate_at(n) for n in (0, 400, 449, 450, 500)] == [0.1, 0.1, 0.1, 0.05, 0.025]
    assert TrainSettings(rate=0.1).rate_at(10**6) == 0.1


@pytest.mark.parametrize("settings", [{"batch": 0}, {"window": 15}, {"window": 0, "steps": 0}])
def test_constants_that_do_not_go_together_are_refused(settings):
    with pytest.raises(ValueError, match="a multiple of the batch"):
        PostSettings(**settings)


def test_training_constants_are_checked():
    with pytest.raises(ValueError, match="rate 0"):
        TrainSettings(rate=0)
