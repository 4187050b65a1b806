"""Runs that end early, however they end, go on as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.search.runs import Counting, KilledError, facts, problem_of, run
from tfplace.core.placer import Placer
from tfplace.core.search_context import BudgetSpentError
from tfplace.core.stepcost import MEASURED
from tfplace.errors import ClusterError, InputError
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.place import search_placement
from tfplace.search.records import RECORD
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.testing import random_problem


@pytest.mark.parametrize("placer", ["annealing", "auto", "brkga", "cross_entropy", "local_search", "random_search"])
def test_a_run_that_was_cut_short_ends_as_one_that_was_not(tmp_path, placer):
    whole, asked = run(tmp_path / "whole", placer, 600)
    run(tmp_path / "cut", placer, 600, last=200)
    again, asked_again = run(tmp_path / "cut", placer, 600)
    assert asked + whole.evaluator.paths == 600 and asked_again < 420  # a batch of no more than 20 was not recorded
    assert again.evaluations == 600
    assert again.best_key == whole.best_key
    np.testing.assert_array_equal(again.best, whole.best)
    assert [(i.evaluations, i.key, i.stage) for i in again.history] == [
        (i.evaluations, i.key, i.stage) for i in whole.history
    ]
    for name in ("evaluations.bin", "improvements.jsonl"):
        assert facts(tmp_path / "cut" / name) == facts(tmp_path / "whole" / name)


def test_a_finished_run_is_told_again_without_any_evaluation(tmp_path):
    first, _ = run(tmp_path, "local_search", 300)
    again, asked = run(tmp_path, "local_search", 300)
    assert asked == 0
    assert again.evaluator.paths == first.evaluator.paths
    assert again.best_key == first.best_key and again.history[-1].seconds <= again.seconds


def test_a_measured_run_loses_nothing_but_what_was_being_measured(tmp_path):
    _, whole = run(tmp_path / "whole", "random_search", 50, source=MEASURED)
    _, before = run(tmp_path / "cut", "random_search", 50, last=20, source=MEASURED)
    assert before == 20 <= len(np.fromfile(tmp_path / "cut" / "evaluations.bin", RECORD))
    assert run(tmp_path / "cut", "random_search", 50, source=MEASURED)[1] == whole - 20


def test_what_was_measured_best_is_on_disk_before_the_next_is_measured(tmp_path):
    """By the clock nothing is told again, so that the devices themselves have to be there."""

    class Better(Counting):
        def key(self, unit_device, limit_s=np.inf):
            if self.asked:
                kept = np.load(tmp_path / "best.npz")
                assert kept["step_s"] == 1.0 / self.asked
                np.testing.assert_array_equal(kept["unit_device"], self.last_asked)
            self._count(1)
            self.last_asked = np.array(unit_device)
            return 0, 1.0 / self.asked

    evaluator = Better(problem_of(), 5, MEASURED)
    with RunDirectory(tmp_path, {}) as directory, contextlib.suppress(KilledError):
        context = Search(evaluator.problem, Budget.parse("1h"), 0, evaluator=evaluator, run=directory).context("mine")
        while True:
            context.key(np.array([context.rng.choice(np.flatnonzero(row)) for row in evaluator.problem.allowed]))
    assert evaluator.asked == 5


def test_a_run_by_the_clock_that_goes_on_draws_something_else(tmp_path):
    run(tmp_path, "random_search", "30s", last=60)
    first = len(facts(tmp_path / "evaluations.bin"))
    run(tmp_path, "random_search", "30s", last=60)
    checks = [check for *_, check in facts(tmp_path / "evaluations.bin")]
    before, after = set(checks[:first]), set(checks[first:])
    assert len(after) > 20 and len(before & after) < 0.5 * len(after)  # some are drawn twice by chance


class Scaled(Counting):
    """Measures ratios, and makes seconds of them by what its machine took at first."""

    def __init__(self, problem, last, speed):
        super().__init__(problem, last, MEASURED)
        self.speed, self.scale_s = speed, None

    def key(self, unit_device, limit_s=np.inf):
        over, ratio = super().key(unit_device, limit_s)
        self.scale_s = self.scale_s or self.speed
        return over, ratio * self.scale_s

    def keys(self, unit_devices, limit_s=np.inf):
        over, step_s = zip(*map(self.key, unit_devices), strict=True)
        return np.array(over), np.array(step_s)


def test_measured_steps_of_a_run_that_goes_on_are_in_one_scale(tmp_path):
    """On a machine that has become three times slower, what is measured then is no worse for it."""
    problem = problem_of()

    def scaled(path, last, speed):
        evaluator = Scaled(problem, last, speed)
        with contextlib.suppress(KilledError):
            search_placement(
                problem,
                placer="random_search",
                budget=50,
                baselines=("round_robin",),
                evaluator=evaluator,
                run_dir=path,
            )
        return float(np.load(path / "best.npz")["step_s"]), [step_s for _, step_s, _ in facts(path / "evaluations.bin")]

    whole, seconds = scaled(tmp_path / "whole", 10**9, 1.0)
    scaled(tmp_path / "cut", 25, 1.0)
    again, seconds_again = scaled(tmp_path / "cut", 10**9, 3.0)
    assert again == whole
    assert seconds_again == seconds and len(seconds) == 50
    assert json.loads((tmp_path / "cut" / "scale.json").read_text()) == 1.0
    (tmp_path / "cut" / "scale.json").write_text("much")
    with pytest.raises(InputError, match=r"scale\.json, which is damaged"):
        scaled(tmp_path / "cut", 10**9, 3.0)


def test_a_run_by_the_clock_goes_on_from_its_best_with_the_seconds_left(tmp_path):
    first, _ = run(tmp_path, "local_search", "30s", last=500)
    problem = problem_of()
    with RunDirectory(tmp_path, {"placer": "local_search"}) as directory:
        again = Search(problem, Budget.parse("30s"), 0, run=directory)
        assert again.best_key == first.best_key
        assert again.evaluations == len(directory.records.known) > 400
        assert 0 < again.seconds < 30
        assert again.context("more").best_key == first.best_key


def test_by_the_clock_a_policy_with_a_checkpoint_leans_on_what_it_leant_on_before(tmp_path, monkeypatch):
    given = []

    class Leaning(Placer):
        accepts_starts = True

        def place(self, context):
            given.append([start.tolist() for start in self.starts])
            allowed = context.problem.allowed
            for device in range(len(given)):  # each run finds something else
                context.key(np.array([np.flatnonzero(row)[::-1][device % row.sum()] for row in allowed]))
            if len(given) > 1:
                context.save_checkpoint(lambda: {"learned": np.zeros(1)})
            return context.best

    monkeypatch.setattr(RunDirectory, "keeps_now", True)
    PLACERS.add("leaning", Leaning)
    for _ in range(4):
        search_placement(problem_of(), placer="leaning", budget="1h", baselines=(), run_dir=tmp_path)
    none, first, *others = given
    assert none == [] and len(first) == 1 and others == [first, first]


class Policy:
    """Moves a mean towards the best half of each batch; its state is kept."""

    citation = ""

    def __init__(self, same=True):
        self.same, self.steps = same, 0

    def place(self, context):
        kept = context.load_checkpoint(same=self.same)
        mean = np.full(context.problem.num_units, 1.0) if kept is None else kept["mean"]
        while True:
            draws = mean + context.rng.normal(size=(10, len(mean)))
            rows = np.clip(np.rint(draws), 0, context.problem.num_devices - 1).astype(np.int32)
            rows = np.where(
                context.problem.allowed[np.arange(len(mean)), rows], rows, context.problem.allowed.argmax(1)
            )
            over, step_s = context.keys(rows.astype(np.int32))
            self.steps += 1
            mean = 0.5 * mean + 0.5 * draws[np.lexsort((step_s, over))[:5]].mean(axis=0)
            context.log({"mean": float(mean.mean())})
            context.save_checkpoint(lambda mean=mean: {"mean": mean})


def train(path, last=10**9, keep_s=0.0, **settings):
    policy = Policy(**settings)
    with RunDirectory(path, {}, keep_s=keep_s) as directory:
        search = Search(problem_of(), Budget(evaluations=300), 0, evaluator=Counting(problem_of(), last), run=directory)
        with contextlib.suppress(KilledError):
            search.run(policy, "policy")
    return search, policy


@pytest.mark.parametrize(("keep_s", "same"), [(0.0, True), (0.0, False), (1e9, True), (1e9, False)])
def test_a_policy_goes_on_from_its_checkpoint(tmp_path, keep_s, same):
    whole, _ = train(tmp_path / "whole")
    train(tmp_path / "cut", last=155)
    again, policy = train(tmp_path / "cut", keep_s=keep_s, same=same)
    assert policy.steps == 15  # of 30, as half were done
    assert again.evaluations == 300 and (again.best_key == whole.best_key) is same
    for name in ("metrics.jsonl", "evaluations.bin"):
        one, other = (facts(tmp_path / path / name) for path in ("cut", "whole"))
        assert len(one) == len(other) and (one == other) is same


def test_what_follows_a_checkpoint_is_done_again(tmp_path):
    whole, _ = train(tmp_path / "whole")
    train(tmp_path / "cut", last=105)
    train(tmp_path / "cut", last=105, keep_s=1e9)  # goes on from 100 to 200, and keeps no state
    again, policy = train(tmp_path / "cut", keep_s=1e9)
    assert policy.steps == 20
    assert again.best_key == whole.best_key
    np.testing.assert_array_equal(again.best, whole.best)


def test_what_follows_a_checkpoint_counts_though_it_would_not_be_the_same(tmp_path):
    train(tmp_path, last=105)
    before, _ = train(tmp_path, last=105, keep_s=1e9)
    with RunDirectory(tmp_path, {}) as directory:
        search = Search(problem_of(), Budget(evaluations=300), 0, run=directory)
        context = search.context("x")
        assert context.load_checkpoint(same=False) is not None
        assert search.evaluations == 200 and directory.records.left == 0
        assert context.best_key == before.best_key
        np.testing.assert_array_equal(context.best, before.best)


def test_without_a_checkpoint_it_counts_too(tmp_path):
    train(tmp_path, last=155, keep_s=1e9)
    again, policy = train(tmp_path, keep_s=1e9, same=False)
    assert policy.steps == 15 and again.evaluations == 300


def test_only_the_whole_search_keeps_a_state(tmp_path):
    with RunDirectory(tmp_path, {}, keep_s=0) as directory:
        context = Search(problem_of(), Budget(evaluations=30), 0, run=directory).context("whole")
        share = context.share(0.5, "share")
        share.key(problem_of().allowed.argmax(axis=1).astype(np.int32))
        share.save_checkpoint(lambda: {"x": np.zeros(1)})
        assert context.load_checkpoint() is None
        context.save_checkpoint(lambda: {"x": np.zeros(1)})
        assert directory.load_checkpoint() is not None


KILLED = """
import sys
import numpy as np
from tfplace.search.place import search_placement
from tfplace.testing import random_problem
problem = random_problem(np.random.default_rng(3), num_ops=200, num_devices=3, unit=1e-3)
search_placement(problem, placer="local_search", budget=8_000, seed=5, baselines=(), run_dir=sys.argv[1])
"""


def test_kill_9_and_go_on(tmp_path):
    """Killed at two moments, and in the end as if never killed."""
    problem = random_problem(np.random.default_rng(3), num_ops=200, num_devices=3, unit=1e-3)

    def place(path):
        return search_placement(problem, placer="local_search", budget=8_000, seed=5, baselines=(), run_dir=path)

    records, best = tmp_path / "cut" / "evaluations.bin", tmp_path / "cut" / "best.npz"
    for more in (500, 1_500):
        before = records.stat().st_size if records.exists() else 0
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "cut")])
        until = time.monotonic() + 120
        while not best.exists() or records.stat().st_size < before + more * RECORD.itemsize:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    cut, whole = place(tmp_path / "cut"), place(tmp_path / "whole")
    assert cut.cost.step_s == whole.cost.step_s
    np.testing.assert_array_equal(cut.op_device, whole.op_device)
    assert facts(records) == facts(tmp_path / "whole" / "evaluations.bin")


def test_an_interrupted_search_is_kept(tmp_path):
    class Stopped:
        citation = ""

        def place(self, context):
            context.key(context.problem.allowed.argmax(axis=1).astype(np.int32))
            raise KeyboardInterrupt

    PLACERS.add("stopped", Stopped)
    placement = search_placement(problem_of(), placer="stopped", budget=10, baselines=(), run_dir=tmp_path)
    best = np.load(tmp_path / "best.npz")
    assert float(best["step_s"]) == placement.cost.step_s
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["placer"] == "stopped" and config["seed"] == 0 and config["versions"]["tfplace"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ClusterError("a worker that is gone", "one")])
@pytest.mark.parametrize("again", [0, 1])
def test_one_that_ends_while_it_is_done_again_keeps_what_it_had_found(tmp_path, again, stop):
    """The first placement that it tries is slow, the second one fast; told `again` of them, it ends once more."""
    problem = problem_of()
    best = Search(problem, Budget(evaluations=2000), 0)
    local_search = PLACERS["local_search"]()
    with contextlib.suppress(BudgetSpentError):
        local_search.place(best.context("x"))
    slow = problem.allowed.argmax(axis=1).astype(np.int32)
    tries = 2

    class Ending:
        citation = ""

        def place(self, context):
            for devices in (slow, best.best)[:tries]:
                context.key(devices)
            raise stop

    PLACERS.add("ending", Ending)
    wanted = {"placer": "ending", "budget": 10, "baselines": (), "run_dir": tmp_path}
    first = search_placement(problem, **wanted)
    assert first.cost.step_s == best.best_key[1] < Simulator(problem).key(slow)[1]
    tries = again
    second = search_placement(problem, **wanted)
    np.testing.assert_array_equal(second.op_device, first.op_device)
    assert float(np.load(tmp_path / "best.npz")["step_s"]) == first.cost.step_s


def test_a_damaged_best_that_was_deleted_is_no_dead_end(tmp_path):
    """A search by the clock whose time is up, and whose best placement is lost, still places something."""
    wanted = {"placer": "local_search", "budget": "0.2 s", "baselines": (), "run_dir": tmp_path}
    search_placement(problem_of(), **wanted)
    (tmp_path / "best.npz").unlink()
    assert search_placement(problem_of(), **wanted).cost.step_s > 0
