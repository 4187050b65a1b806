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

from tfplace.core.stepcost import MEASURED
from tfplace.errors import ClusterError, InputError, UnknownNameError
from tfplace.registry import PLACERS
from tfplace.search.budget import Budget
from tfplace.search.place import search_placement
from tfplace.search.records import RECORD, Lines, Records
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import Search
from tfplace.simulate.evaluate import Simulator
from tfplace.simulate.options import Options
from tfplace.study.base import BudgetSpentError
from tfplace.testing import random_problem


def problem_of(seed=3):
    return random_problem(np.random.default_rng(seed), num_ops=40, num_devices=3, unit=1e-3)


class Counting(Simulator):
    """Counts what it really evaluates; ends the process's work after so many."""

    def __init__(self, problem, last=10**9, source="simulated"):
        super().__init__(problem)
        self.last, self.asked, self.paths, self.source = last, 0, 0, source

    def key(self, unit_device, limit_s=np.inf):
        self._count(1)
        return super().key(unit_device, limit_s)

    def keys(self, unit_devices, limit_s=np.inf):
        self._count(len(unit_devices))
        return super().keys(unit_devices, limit_s)

    def critical_path(self, unit_device):
        self.paths += 1  # not kept: a search that goes on asks for them again
        return super().critical_path(unit_device)

    def _count(self, rows):
        if self.asked + rows > self.last:
            raise KilledError
        self.asked += rows


class KilledError(Exception):
    pass


def run(path, placer, budget, last=10**9, seed=0, **settings):
    """One process's part of a run; the search, and what was really evaluated."""
    problem = problem_of()
    evaluator = Counting(problem, last, **settings)
    with RunDirectory(path, {"placer": placer}) as directory:
        search = Search(problem, Budget.parse(budget), seed, evaluator=evaluator, run=directory)
        with contextlib.suppress(KilledError):
            search.run(PLACERS[placer](), placer)
    return search, evaluator.asked


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


def facts(path):
    """What a file says, but for when."""
    if path.suffix == ".bin":
        return np.fromfile(path, RECORD)[["over", "step_s", "check"]].tolist()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in path.read_text().splitlines()]


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


def test_a_torn_record_and_a_torn_line_are_cut_off(tmp_path):
    whole, _ = run(tmp_path / "whole", "local_search", 300)
    run(tmp_path / "cut", "local_search", 300, last=150)
    with (tmp_path / "cut" / "evaluations.bin").open("ab") as file:
        file.write(b"\x01" * (RECORD.itemsize - 1))
    with (tmp_path / "cut" / "improvements.jsonl").open("ab") as file:
        file.write(b'{"evaluations": 151, "sec')
    assert run(tmp_path / "cut", "local_search", 300)[0].best_key == whole.best_key
    assert facts(tmp_path / "cut" / "improvements.jsonl") == facts(tmp_path / "whole" / "improvements.jsonl")


def test_a_run_by_the_clock_goes_on_from_its_best_with_the_seconds_left(tmp_path):
    first, _ = run(tmp_path, "local_search", "30s", last=500)
    problem = problem_of()
    with RunDirectory(tmp_path, {"placer": "local_search"}) as directory:
        again = Search(problem, Budget.parse("30s"), 0, run=directory)
        assert again.best_key == first.best_key
        assert again.evaluations == len(directory.records.known) > 400
        assert 0 < again.seconds < 30
        assert again.study("more").best_key == first.best_key


def test_other_placements_than_recorded_are_refused(tmp_path):
    run(tmp_path, "random_search", 100, last=50)
    with pytest.raises(InputError, match=r"another placement as evaluation \d+ .* not deterministic"):
        run(tmp_path, "random_search", 100, seed=1)


def test_a_second_process_is_refused(tmp_path):
    with RunDirectory(tmp_path, {}):
        code = f"from tfplace.search.rundir import RunDirectory; RunDirectory({str(tmp_path)!r}, {{}})"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "in which another process is at work" in second.stderr
    RunDirectory(tmp_path, {}).close()


def test_a_run_of_something_else_is_refused(tmp_path):
    RunDirectory(tmp_path, {"placer": "auto", "versions": {"tfplace": "1"}}).close()
    RunDirectory(tmp_path, {"placer": "auto", "versions": {"tfplace": "2"}}).close()
    with pytest.raises(InputError, match=r"a run with placer 'heft' .* 'auto', with which it was begun"):
        RunDirectory(tmp_path, {"placer": "heft"})
    with pytest.raises(InputError, match="in which a run was begun"):
        RunDirectory(tmp_path, {"placer": "auto"}, resume=False)
    RunDirectory(tmp_path, {"placer": "auto"}).close()  # what was refused holds no lock


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"'thesis.tex' and no config.json"):
        RunDirectory(tmp_path, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a directory that can be made"):
        RunDirectory(tmp_path / "file", {})


@pytest.mark.parametrize("name", ["config.json", "improvements.jsonl", "best.npz"])
def test_damage_is_said(tmp_path, name):
    run(tmp_path, "local_search", 50)
    (tmp_path / name).write_bytes(b"nonsense\n")
    with pytest.raises(InputError, match=rf"{name}, which is damaged"):
        RunDirectory(tmp_path, {"placer": "local_search"})


@pytest.mark.parametrize("size", [0, 4, 200])
def test_arrays_that_are_cut_off_are_said_to_be_damaged(tmp_path, size):
    with RunDirectory(tmp_path, {}) as directory:
        directory.improved(np.zeros(100, np.int32), (0, 1.0), 1, 0.0, "x")
        directory.keep({"mean": np.zeros(100)})
        for name in ("best.npz", "checkpoint.npz"):
            (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:size])
        with pytest.raises(InputError, match=r"checkpoint.npz, which is damaged.*Delete it"):
            directory.recall()
    with pytest.raises(InputError, match=r"best.npz, which is damaged"):
        RunDirectory(tmp_path, {})


class Called(Counting):
    """Counts what is evaluated outside of the search, too."""

    def __init__(self, problem):
        super().__init__(problem, source=MEASURED)
        self.called = 0

    def __call__(self, unit_device):
        self.called += 1
        return super().__call__(unit_device)


def test_a_directory_of_another_search_is_refused_before_anything_is_evaluated(tmp_path):
    def place(evaluator, **settings):
        given = {"placer": "random_search", "budget": 5, "evaluator": evaluator, "run_dir": tmp_path, **settings}
        search_placement(evaluator.problem, **given)

    first, again, other = (Called(problem_of()) for _ in range(3))
    place(first)
    place(again)
    every = 3 + 3 + 1  # single devices, baselines and the answer: these are evaluated again, and nothing else
    assert (first.called, again.called) == (every, every)
    assert first.asked == 5 and again.asked == 0
    for change in ({"seed": 1}, {"resume": False}):
        with pytest.raises(InputError, match="was begun"):
            place(other, **change)
    assert other.called == 0


def test_unknown_baselines_begin_no_run(tmp_path):
    with pytest.raises(UnknownNameError, match="no_such"):
        search_placement(problem_of(), placer="random", budget=5, baselines=("no_such",), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Policy:
    """Moves a mean towards the best half of each batch; its state is kept."""

    citation = ""

    def __init__(self, same=True):
        self.same, self.steps = same, 0

    def place(self, study):
        kept = study.recall(same=self.same)
        mean = np.full(study.problem.num_units, 1.0) if kept is None else kept["mean"]
        while True:
            draws = mean + study.rng.normal(size=(10, len(mean)))
            rows = np.clip(np.rint(draws), 0, study.problem.num_devices - 1).astype(np.int32)
            rows = np.where(study.problem.allowed[np.arange(len(mean)), rows], rows, study.problem.allowed.argmax(1))
            over, step_s = study.keys(rows.astype(np.int32))
            self.steps += 1
            mean = 0.5 * mean + 0.5 * draws[np.lexsort((step_s, over))[:5]].mean(axis=0)
            study.log({"mean": float(mean.mean())})
            study.keep(lambda mean=mean: {"mean": mean})


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
        study = search.study("x")
        assert study.recall(same=False) is not None
        assert search.evaluations == 200 and directory.records.left == 0
        assert study.best_key == before.best_key
        np.testing.assert_array_equal(study.best, before.best)


def test_without_a_checkpoint_it_counts_too(tmp_path):
    train(tmp_path, last=155, keep_s=1e9)
    again, policy = train(tmp_path, keep_s=1e9, same=False)
    assert policy.steps == 15 and again.evaluations == 300


def test_only_the_whole_search_keeps_a_state(tmp_path):
    with RunDirectory(tmp_path, {}, keep_s=0) as directory:
        study = Search(problem_of(), Budget(evaluations=30), 0, run=directory).study("whole")
        share = study.share(0.5, "share")
        share.key(problem_of().allowed.argmax(axis=1).astype(np.int32))
        share.keep(lambda: {"x": np.zeros(1)})
        assert study.recall() is None
        study.keep(lambda: {"x": np.zeros(1)})
        assert directory.recall() is not None


KILLED = """
import sys
import numpy as np
from tfplace.search.place import search_placement
from tfplace.testing import random_problem
problem = random_problem(np.random.default_rng(3), num_ops=200, num_devices=3, unit=1e-3)
search_placement(problem, placer="local_search", budget=60_000, seed=5, baselines=(), run_dir=sys.argv[1])
"""


def test_kill_9_and_go_on(tmp_path):
    """Killed at three moments, and in the end as if never killed."""
    problem = random_problem(np.random.default_rng(3), num_ops=200, num_devices=3, unit=1e-3)

    def place(path):
        return search_placement(problem, placer="local_search", budget=60_000, seed=5, baselines=(), run_dir=path)

    records, best = tmp_path / "cut" / "evaluations.bin", tmp_path / "cut" / "best.npz"
    for more in (1_000, 5_000, 10_000):
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

        def place(self, study):
            study.key(study.problem.allowed.argmax(axis=1).astype(np.int32))
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
        local_search.place(best.study("x"))
    slow = problem.allowed.argmax(axis=1).astype(np.int32)
    tries = 2

    class Ending:
        citation = ""

        def place(self, study):
            for devices in (slow, best.best)[:tries]:
                study.key(devices)
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


def test_a_simulator_with_other_options_is_another_run(tmp_path):
    wanted = {"placer": "heft", "budget": 10, "baselines": (), "run_dir": tmp_path}
    problem = problem_of()
    search_placement(problem, **wanted)
    search_placement(problem, evaluator=Simulator(problem, Options()), **wanted)
    with pytest.raises(InputError, match=r"a run with options .*parallel=2"):
        search_placement(problem, evaluator=Simulator(problem, Options(parallel=2)), **wanted)


def test_records_are_on_disk_without_being_closed(tmp_path):
    with contextlib.closing(Records(tmp_path / "r")) as records:
        records.add(np.zeros((3, 4), np.int32), np.zeros(3, np.int64), np.arange(3.0), 1.5)
        records.flush()
        with contextlib.closing(Records(tmp_path / "r")) as others:
            assert others.known["step_s"].tolist() == [0.0, 1.0, 2.0]
            assert others.seconds == 1.5


def test_lines_are_in_order_and_said_once(tmp_path):
    with contextlib.closing(Lines(tmp_path / "l")) as lines:
        for evaluations in (1, 3, 2, 3, 4):
            lines.add(evaluations, {"x": evaluations})
    with contextlib.closing(Lines(tmp_path / "l")) as lines:
        assert lines.last == 4
    assert [json.loads(line)["x"] for line in (tmp_path / "l").read_text().splitlines()] == [1, 3, 4]


def test_a_spent_budget_is_told_as_such(tmp_path):
    search, _ = run(tmp_path, "random_search", 20)
    with RunDirectory(tmp_path, {"placer": "random_search"}) as directory:
        again = Search(problem_of(), Budget(evaluations=20), 0, run=directory)
        again.run(PLACERS["random_search"](), "x")
        with pytest.raises(BudgetSpentError):
            again.study("more").key(again.best)
    assert again.best_key == search.best_key
