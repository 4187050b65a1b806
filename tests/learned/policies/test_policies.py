"""What every policy promises beyond what placers do; goldens; problems whose answer is known."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError, best_of
from tfplace.errors import InputError
from tfplace.learned.policies.gdp import GdpScratch, GdpSettings
from tfplace.learned.policies.hierarchical import Hierarchical, HierarchicalSettings
from tfplace.learned.policies.placeto import PlacetoScratch
from tfplace.learned.policies.post import PolicyGradient, Post, PostCrossEntropy, PostPpo, PostSettings
from tfplace.learned.policies.seq2seq import Seq2Seq, Seq2SeqSettings
from tfplace.learned.training.parameters import Parameters
from tfplace.learned.training.placeto_settings import PlacetoSettings
from tfplace.learned.training.settings import TrainSettings
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.grouped import OnGroups
from tfplace.search.place import search_placement
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import make_graph, make_problem, make_topology, random_problem

SMALL = Seq2SeqSettings(hidden=16, embedding=4)
QUICK = dataclasses.replace(SMALL, train=TrainSettings(rate=0.01, pessimistic=False))
HIERARCHY = HierarchicalSettings(groups=8, groupings=2, hidden=16, embedding=4, train=QUICK.train)
SHOT = GdpSettings(
    hidden=16,
    rounds=1,
    layers=1,
    segment=32,
    train=TrainSettings(rate=0.01, batch=20, decay=None, pessimistic=False),
)
VISITS = PlacetoSettings(hidden=8, rounds=2, rate=0.01, last_rate=0.003)
POLICIES = {
    "gdp_scratch": lambda starts=(): GdpScratch(starts, SHOT),
    "hierarchical": lambda starts=(): Hierarchical(starts, HIERARCHY),
    "placeto_scratch": lambda starts=(): PlacetoScratch(starts, VISITS),
    "policy_gradient": PolicyGradient,
    "post": Post,
    "post_ce": PostCrossEntropy,
    "post_ppo": PostPpo,
    "seq2seq": lambda starts=(): Seq2Seq(starts, QUICK),
}

everyone = pytest.mark.parametrize("name", POLICIES)

LONG = dict.fromkeys(("gdp_scratch", "hierarchical", "placeto_scratch"), pytest.mark.slow)
"""Trace for seconds what others have traced already."""

but_long = pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in POLICIES])
"""For what their goldens say, too: that they learn."""


def planted(ops=12, devices=3):
    """A chain whose ops are each three times as fast on the device that their type tells, and transfers are cheap."""
    names = [f"op{i}" for i in range(ops)]
    best = np.arange(ops) * 7 % devices
    types = {name: ("MatMul", "Conv2D", "Relu")[d] for name, d in zip(names, best, strict=True)}
    graph = make_graph(dict.fromkeys(names, 100), [f"{a} -> {b}" for a, b in itertools.pairwise(names)], types=types)
    seconds = np.full((ops, devices), 3.0)
    seconds[np.arange(ops), best] = 1.0
    return make_problem(graph, make_topology(devices, bandwidth=1e6, latency=0.01), seconds), best.astype(np.int32)


@but_long
def test_a_planted_problem_is_solved_and_what_is_drawn_gets_better(name):
    """Of 531,441 placements (1,024 for the grouper, which learns more slowly) the best, within 2,000 evaluations."""
    problem, best = planted(10, 2) if name == "hierarchical" else planted()
    logged = []
    search = Search(problem, Budget(evaluations=2000), seed=0, logged=lambda n, metrics: logged.append(metrics))
    devices = search.run(POLICIES[name](), name)
    np.testing.assert_array_equal(devices, best)
    assert Simulator(problem).key(devices) == search.best_key
    first, last = (np.mean([m["reward"] for m in part]) for part in (logged[:5], logged[-5:]))
    assert last > first + 0.3
    assert all(m["failed"] == 0 and m["step_s"] > search.best_key[1] * (1 - 1e-9) for m in logged)


LEARNERS = ("post", "seq2seq")
"""One without a network and one with: for what a search does around them. Of the others their own state differs."""


@pytest.mark.parametrize(
    ("name", "keep_s", "leant"),
    [("post", keep_s, leant) for keep_s in (0.0, 1e9) for leant in (False, True)]
    + [("seq2seq", 0.0, True), pytest.param("seq2seq", 1e9, True, marks=pytest.mark.slow)]
    + [pytest.param(name, 0.0, True, marks=LONG.get(name, ())) for name in POLICIES if name not in LEARNERS],
)
def test_a_run_that_was_cut_short_ends_as_one_that_was_not(name, keep_s, leant, tmp_path):
    """From its last checkpoint, or, where none was kept, told everything again; with a start and without."""
    problem = random_problem(np.random.default_rng(4), num_ops=25, num_devices=3, unit=1e-3)

    class Ends(Simulator):
        last = 10**9

        def keys(self, unit_devices, limit_s=np.inf):
            if self.calls + len(unit_devices) > self.last:
                raise EndError
            return super().keys(unit_devices, limit_s)

    starts = [problem.allowed.argmax(axis=1).astype(np.int32)] if leant else []

    def run(path, last=10**9):
        evaluator = Ends(problem)
        evaluator.last = last
        with RunDirectory(path, {}, keep_s=keep_s) as directory, contextlib.suppress(EndError):
            search = Search(problem, Budget(evaluations=160), 3, evaluator=evaluator, run=directory)
            search.run(POLICIES[name](starts), name)
            return search, evaluator.calls
        return None

    whole, asked = run(tmp_path / "whole")
    run(tmp_path / "cut", last=110)
    assert (tmp_path / "cut" / "checkpoint.npz").exists() == (keep_s == 0)
    again, asked_again = run(tmp_path / "cut")
    assert asked == 160 and asked_again < 80
    assert again.best_key == whole.best_key
    np.testing.assert_array_equal(again.best, whole.best)
    for file in ("improvements.jsonl", "metrics.jsonl"):
        one, other = (facts(tmp_path / part / file) for part in ("cut", "whole"))
        assert [line.keys() for line in one] == [line.keys() for line in other]
        for a, b in zip(one, other, strict=True):
            assert a == pytest.approx(b, rel=1e-4, nan_ok=True)


class EndError(Exception):
    pass


@pytest.mark.parametrize("name", LEARNERS)
def test_groups_of_a_grouper_go_on_too(name, tmp_path, monkeypatch):
    """Groups of groups, each with a best of its own."""
    problem = random_problem(np.random.default_rng(4), num_ops=40, num_devices=3, unit=1e-3)
    policy = POLICIES[name]()

    class Here(type(policy)):
        def __init__(self):
            super().__init__(settings=policy.settings)

    PLACERS.add("here", Here)
    search = {"placer": "here", "grouper": "heavy_edge", "groups": 12, "budget": 96}

    monkeypatch.setattr(RunDirectory, "keeps_now", True)

    def end(evaluations, metrics):
        if evaluations >= 64:
            raise EndError

    with pytest.raises(EndError):
        search_placement(problem, **search, run_dir=tmp_path, logged=end)
    assert (tmp_path / "checkpoint.npz").exists()
    again = search_placement(problem, **search, run_dir=tmp_path)
    np.testing.assert_array_equal(again.op_device, search_placement(problem, **search).op_device)


@pytest.mark.parametrize("keep_s", [0.0, 1e9])
@pytest.mark.parametrize("name", LEARNERS)
def test_by_the_clock_everything_that_was_found_counts(name, keep_s, tmp_path):
    """What is asked for again after its time is up is the best of the directory, with a checkpoint and without."""
    problem = random_problem(np.random.default_rng(4), num_ops=25, num_devices=3, unit=1e-3)
    for _ in range(2):
        with RunDirectory(tmp_path, {}, keep_s=keep_s) as directory:
            search = Search(problem, Budget(seconds=0.5), 0, run=directory)
            devices = search.run(POLICIES[name](), name)
        assert Simulator(problem).key(devices) == directory.best.key == search.best_key


class Recalls(Placer):
    """Keeps its state, finds something better, and is killed; goes on from its state."""

    citation = "none"

    def place(self, context):
        if context.load_checkpoint(same=False) is None:
            context.key(np.arange(context.problem.num_units, dtype=np.int32) % 2)
            context.save_checkpoint(lambda: {"x": np.zeros(1)})
            context.key(np.zeros(context.problem.num_units, np.int32))
            raise EndError
        return best_of(context)


def test_what_groups_found_after_their_checkpoint_counts(tmp_path):
    problem = make_problem(
        make_graph({f"v{i}": 9 for i in range(8)}, [f"v{i} -> v{i + 1}" for i in range(7)]), make_topology(2), 1e-3
    )
    for _ in range(2):
        with contextlib.suppress(EndError), RunDirectory(tmp_path, {}, keep_s=0.0) as directory:
            found = Search(problem, Budget(seconds=60.0), 0, run=directory).run(
                OnGroups(Recalls(), "topological", 4), "x"
            )
    assert not found.any()


@everyone
def test_a_budget_that_is_spent_before_anything_is_tried_is_no_fault(name):
    """As of a share of another placer's budget, which making features uses up."""
    problem = planted()[0]
    search = Search(problem, Budget(evaluations=10), 0)
    context = search.context("x")
    while context.spent < 1:
        context.key(np.zeros(problem.num_units, np.int32))
    with pytest.raises(BudgetSpentError):
        POLICIES[name]().place(context.share(1.0, "y"))


def facts(path):
    return [
        {k: v for k, v in json.loads(line).items() if isinstance(v, int | float) and k != "seconds"}
        for line in path.read_text().splitlines()
    ]


@but_long
def test_a_start_is_leant_towards(name):
    """From the optimum nothing worse is answered, and what is drawn at first is closer to it."""
    problem, best = planted()
    logged = []
    for starts in ([best[::-1].copy(), best], ()):
        search = Search(problem, Budget(evaluations=40), seed=0, logged=lambda n, metrics: logged.append(metrics))
        search.run(POLICIES[name](starts=starts), name)
        if starts:
            assert search.best_key == Simulator(problem).key(best)
    assert logged[0]["reward"] > logged[-1]["reward"] + 0.1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("hierarchical", "placeto_scratch") else ())
        for name in POLICIES
    ],
)
def test_large_problems_are_placed_in_groups(name):
    """Or, without any, in segments."""
    problem = random_problem(np.random.default_rng(1), num_ops=300, num_devices=3, unit=1e-3)
    assert problem.num_units > 30
    placer = POLICIES[name]()
    part = "segment" if name == "gdp_scratch" else "groups"
    placer.settings = dataclasses.replace(placer.settings, **{part: 20})
    devices = Search(problem, Budget(evaluations=30), seed=0).run(placer, name)
    problem.expand(devices)


@but_long
def test_what_the_users_model_draws_does_not_depend_on_the_search(name):
    def drawn(search):
        tf.random.set_seed(1)
        if search:
            Search(planted()[0], Budget(evaluations=40), seed=0).run(POLICIES[name](), name)
        return tf.random.normal([3]).numpy().tolist()

    assert drawn(search=True) == drawn(search=False)


GOLDENS = Path(__file__).parent / "goldens.json"
"""Rewards of the first updates; `python tests/learned/policies/regenerate.py` writes them anew."""


def golden_run(name):
    """[N] mean rewards of a short training."""
    problem = random_problem(np.random.default_rng(7), num_ops=30, num_devices=3, unit=1e-3)
    logged = []
    search = Search(
        problem, Budget(evaluations=160), seed=5, logged=lambda n, metrics: logged.append(metrics["reward"])
    )
    search.run(POLICIES[name](), name)
    return logged


def test_nothing_of_a_search_stays_in_tensorflow():
    problem = random_problem(np.random.default_rng(4), num_ops=25, num_devices=3, unit=1e-3)

    def graphs_after_a_search():
        Search(problem, Budget(evaluations=60), 3).run(POLICIES["seq2seq"](), "seq2seq")
        gc.collect()
        return {id(graph) for graph in gc.get_referrers(FuncGraph) if isinstance(graph, FuncGraph)}

    shared = graphs_after_a_search()  # such as are traced once for all
    assert graphs_after_a_search() <= shared


@everyone
def test_goldens(name):
    np.testing.assert_allclose(golden_run(name), json.loads(GOLDENS.read_text())[name], rtol=1e-4)


@pytest.mark.parametrize("settings", [HierarchicalSettings.published(), HierarchicalSettings.shipped()])
def test_the_published_settings_run(settings):
    problem, _ = planted()
    settings = dataclasses.replace(settings, hidden=16)
    search = Search(problem, Budget(evaluations=60), seed=0)
    problem.expand(search.run(Hierarchical(settings=settings), "x"))


def test_the_rate_falls_as_told():
    settings = TrainSettings(rate=0.1, cool_after=400, cool_every=50, cool_by=0.5)
    assert [settings.rate_at(n) for n in (0, 400, 449, 450, 500)] == [0.1, 0.1, 0.1, 0.05, 0.025]
    assert TrainSettings(rate=0.1).rate_at(10**6) == 0.1


@pytest.mark.parametrize(
    "settings",
    [{"batch": 0}, {"window": 15}, {"window": 0, "steps": 0}, {"window": -100, "steps": 0}, {"steps": -3}],
)
def test_constants_that_do_not_go_together_are_refused(settings):
    with pytest.raises(ValueError, match="a multiple of the batch"):
        PostSettings(**settings)


@pytest.mark.parametrize(
    "settings",
    [{"elite": float("nan")}, {"elite": 1.5}, {"mixing": -0.1}, {"rate": -1.0}, {"decay": 2.0}, {"lean": 3.0}],
)
def test_constants_of_post_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        PostSettings(**settings)


def test_one_placement_alone_has_none_to_be_compared_with():
    with pytest.raises(ValueError, match="a batch of 1 with 10 steps; expected at least 2"):
        PostSettings(batch=1)
    assert PostSettings(batch=1, steps=0).window


def test_gradients_that_are_no_numbers_are_left_out():
    variable = tf.Variable([1.0, 2.0])
    parameters = Parameters([variable], 0.1)
    assert np.isnan(parameters.descend([np.array([np.nan, 1.0], np.float32)], 0.1, 1.0))
    assert variable.numpy().tolist() == [1.0, 2.0]
    parameters.descend([np.array([3.0, 4.0], np.float32)], 0.1, 1.0)
    assert (variable.numpy() < [1.0, 2.0]).all()


@pytest.mark.parametrize("groupings", [0, 3])
def test_every_grouping_has_as_many_placements(groupings):
    with pytest.raises(ValueError, match=rf"a batch of 4 with {groupings} groupings"):
        HierarchicalSettings(groupings=groupings)


def test_training_constants_are_checked():
    with pytest.raises(ValueError, match="rate 0"):
        TrainSettings(rate=0)
    with pytest.raises(ValueError, match="cool_every 0"):
        TrainSettings(cool_every=0)
    with pytest.raises(ValueError, match="lean 1"):
        HierarchicalSettings(lean=1.0)
    with pytest.raises(ValueError, match="clip inf"):
        TrainSettings(clip=float("inf"))
    with pytest.raises(ValueError, match="decay 1"):
        TrainSettings(decay=1.0)
    with pytest.raises(ValueError, match="hidden 0"):
        Seq2SeqSettings(hidden=0)


@pytest.mark.parametrize("settings", [{"clip": float("inf")}, {"temperature": 1e9}, {"discount": 1.5}])
def test_constants_of_placeto_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        PlacetoSettings(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": 10, "heads": 4},
        {"heads": 0},
        {"rounds": -1},
        {"segment": 0},
        {"epochs": 0},
        {"clip": 0.0},
        {"temperature": 0.0},
        {"temperature": 1e9},
        {"together": 0},
        {"coarse": 0},
    ],
)
def test_constants_of_gdp_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        GdpSettings(**settings)


@pytest.mark.parametrize("name", ["gdp_scratch", "placeto_scratch", *LEARNERS])
def test_within_a_graph_nothing_is_learned(name):
    with tf.Graph().as_default(), pytest.raises(InputError, match="Place outside of the graph"):
        Search(planted()[0], Budget(evaluations=200), seed=0).run(POLICIES[name](), name)


def test_a_batch_is_learned_from_as_often_as_told():
    def rewards(epochs):
        logged = []
        search = Search(planted()[0], Budget(evaluations=60), seed=0, logged=lambda n, m: logged.append(m["reward"]))
        search.run(GdpScratch(settings=dataclasses.replace(SHOT, epochs=epochs)), "gdp")
        return logged

    once, thrice = rewards(1), rewards(3)
    assert once[0] == thrice[0]
    assert once[1] != thrice[1]
