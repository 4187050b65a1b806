"""Policies that several controllers train together."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import threading
from concurrent.futures import Future

import keras
import numpy as np
import pytest

import tfplace
from tests.learned.policies.test_policies import POLICIES, EndError, planted
from tfplace.core.engine import Controllers
from tfplace.engines.cores import own_cores
from tfplace.engines.dask_workers import DaskEngine
from tfplace.engines.in_process import InProcessEngine
from tfplace.engines.process_workers import ProcessEngine, WorkerLostError
from tfplace.errors import InputError
from tfplace.learned.policies.seq2seq import Seq2Seq
from tfplace.search.budget import Budget
from tfplace.search.place import search_placement
from tfplace.search.records import RECORD
from tfplace.search.rundir import RunDirectory
from tfplace.search.search import Search
from tfplace.simulation.evaluate import Simulator
from tfplace.simulation.pipeline import PipelineLoads
from tfplace.testing import random_problem

together = pytest.mark.parametrize("name", [pytest.param("hierarchical", marks=pytest.mark.slow), "seq2seq"])


@pytest.fixture(scope="module")
def problem():
    return random_problem(np.random.default_rng(4), num_ops=25, num_devices=3, unit=1e-3)


def run(problem, name, controllers, evaluations=256, *, each=None, directory=None, evaluator=None):
    """The search, and the norms of its gradients; `each` is told how many updates there have been."""
    logged = []

    def tell(count, metrics):
        logged.append(metrics.get("gradient"))
        if each is not None:
            each(len(logged))

    budget = Budget(evaluations=evaluations)
    search = Search(problem, budget, 0, logged=tell, controllers=controllers, run=directory, evaluator=evaluator)
    search.run(POLICIES[name](), name)
    return search, logged


class Watched(ProcessEngine):
    """Remembers the workers it has started."""

    def start(self, make):
        self.crew = super().start(make)
        return self.crew


class Spied(InProcessEngine):
    """Remembers what was done; `hand_out` may say something else than that."""

    def start(self, make):
        workers, self.done = super().start(make), []
        submit = workers.submit

        def spied(*task):
            self.done.append(submit(*task))
            return self.hand_out(self.done[-1])

        workers.submit = spied
        return workers

    def hand_out(self, future):
        return future


@together
def test_one_controller_does_what_a_search_without_any_does(problem, name):
    alone, norms = run(problem, name, None)
    one, other = run(problem, name, Controllers(InProcessEngine(1)))
    assert norms[:-1] == pytest.approx(other[:15], rel=1e-5)
    assert one.best_key == alone.best_key and one.evaluations == 256


@together
def test_the_number_of_controllers_counts_not_that_of_workers(problem, name):
    first, norms = run(problem, name, Controllers(InProcessEngine(2)))
    other, again = run(problem, name, Controllers(InProcessEngine(1), count=2))
    assert norms == again and first.best_key == other.best_key


def test_a_run_goes_on_with_another_number_of_workers(problem, tmp_path):
    def end(updates):
        if updates == 3:
            raise EndError

    whole, _ = run(problem, "seq2seq", Controllers(InProcessEngine(2)))
    with RunDirectory(tmp_path, {}, keep_s=0.0) as directory, contextlib.suppress(EndError):
        run(problem, "seq2seq", Controllers(InProcessEngine(1), count=2), each=end, directory=directory)
    with RunDirectory(tmp_path, {}) as directory:
        again, norms = run(problem, "seq2seq", Controllers(InProcessEngine(3), count=2), directory=directory)
    assert again.best_key == whole.best_key and again.evaluations == 256 and len(norms) == 5


@pytest.mark.slow
@pytest.mark.cluster
def test_on_dask_they_find_what_they_find_in_processes(problem):
    found, norms = run(problem, "seq2seq", Controllers(DaskEngine(count=1), count=2), evaluations=96)
    there, again = run(problem, "seq2seq", Controllers(ProcessEngine(2)), evaluations=96)
    assert norms == again and found.best_key == there.best_key


@pytest.mark.slow
@pytest.mark.skipif(len(own_cores()) < 2, reason="one processor")
def test_results_do_not_depend_on_how_many_processors_a_controller_has():
    """With networks so large that TensorFlow would share an operation among threads."""
    problem = random_problem(np.random.default_rng(0), num_ops=60, num_devices=3, unit=1e-3)
    every = os.sched_getaffinity(0)

    def norms(cores):
        os.sched_setaffinity(0, cores)
        try:
            logged = []
            controllers = Controllers(ProcessEngine(1))
            budget = Budget(evaluations=80)
            search = Search(
                problem, budget, 0, controllers=controllers, logged=lambda n, told: logged.append(told["gradient"])
            )
            search.run(Seq2Seq(), "seq2seq")
            return logged
        finally:
            os.sched_setaffinity(0, every)

    assert norms({min(every)}) == norms(every)


@together
def test_a_gradient_of_several_is_the_mean_of_theirs(problem, name):
    engine = Spied(3)
    search, norms = run(problem, name, Controllers(engine), evaluations=100)
    each = [future.result().gradients for future in engine.done[:3]]
    mean = [np.mean(of_one, axis=0) for of_one in zip(*each, strict=True)]
    assert norms[0] == pytest.approx(np.sqrt(sum((g**2).sum() for g in mean)), rel=1e-5)
    assert not any(np.array_equal(a, b) for a, b in zip(each[0], each[1], strict=True))
    assert search.evaluations == 100  # two times 48, and 4 of the next


@together
def test_the_same_seed_gives_the_same_result_wherever_controllers_run_and_though_one_is_killed(problem, name):
    expected, norms = run(problem, name, Controllers(InProcessEngine(2)))
    engine = Watched(2)
    killed = []

    def kill(updates):
        if updates == 3:
            killed.append(engine.crew.pids[0])
            os.kill(killed[0], signal.SIGKILL)

    found, again = run(problem, name, Controllers(engine), each=kill)
    assert killed and killed[0] not in engine.crew.pids
    assert again == pytest.approx(norms, rel=1e-4)
    assert found.best_key == expected.best_key and found.evaluations == 256
    np.testing.assert_array_equal(found.best, expected.best)


@pytest.mark.slow
def test_controllers_that_do_not_wait_for_one_another_may_die_and_join():
    problem, best = planted(10, 2)
    engine = Watched(1)

    def change(updates):
        if updates == 2:
            engine.crew.resize(2)
        if updates == 20:
            os.kill(engine.crew.pids[0], signal.SIGKILL)

    search, norms = run(problem, "seq2seq", Controllers(engine, asynchronous=True), 1600, each=change)
    np.testing.assert_array_equal(search.best, best)
    assert search.evaluations == 1600 and len(norms) == 100
    assert not engine.crew.pids  # all have ended


def test_each_has_a_baseline_of_its_own(problem, tmp_path):
    with RunDirectory(tmp_path, {}, keep_s=0) as directory:
        run(problem, "seq2seq", Controllers(InProcessEngine(3), asynchronous=True), directory=directory)
        baselines = directory.load_checkpoint()["grouped.state.baselines"]
    assert len({*baselines.tolist()}) == 3


@pytest.mark.parametrize("asynchronous", [False, pytest.param(True, marks=pytest.mark.slow)])
@together
def test_a_run_that_was_cut_short_goes_on(problem, name, asynchronous, tmp_path):
    """Asynchronous controllers with other draws, since what follows would not be the same anyway."""

    def go(path, last=10**9):
        def end(updates):
            if updates == last:
                raise EndError

        with RunDirectory(tmp_path / path, {}, keep_s=0) as directory, contextlib.suppress(EndError):
            return run(problem, name, Controllers(InProcessEngine(1), asynchronous), each=end, directory=directory)
        return None

    whole, norms = go("whole")
    go("cut", last=6)
    again, after = go("cut")
    assert len(norms) == 16 and len(after) == 10  # the sixth had been said
    assert again.evaluations == 256
    if not asynchronous:
        assert after == pytest.approx(norms[-len(after) :], rel=1e-4)
        assert again.best_key == whole.best_key
    size = 256 * RECORD.itemsize
    assert [(tmp_path / path / "evaluations.bin").stat().st_size for path in ("cut", "whole")] == [size, size]
    with RunDirectory(tmp_path / "cut", {}) as directory:
        assert directory.best.key == again.best_key


def test_they_evaluate_as_the_search_does(problem):
    for evaluator in (PipelineLoads(problem), Simulator(problem)):
        search, _ = run(problem, "seq2seq", Controllers(InProcessEngine(2)), 64, evaluator=evaluator)
        assert search.best_key == evaluator.key(search.best)
    replica = Search(problem, Budget(evaluations=1), 0, evaluator=PipelineLoads(problem)).context("x").replica()()
    assert replica.objective == PipelineLoads.objective and replica.left.evaluations > 1e9


def test_what_is_measured_is_not_measured_by_several(problem, tmp_path):
    """Before anything is measured or written."""

    class Measured(Simulator):
        source = "measured"

    evaluator = Measured(problem)
    with pytest.raises(InputError, match="controllers with measured steps"):
        search_placement(
            problem,
            placer="seq2seq",
            budget=10,
            controllers=Controllers(InProcessEngine(2)),
            evaluator=evaluator,
            run_dir=tmp_path / "run",
        )
    assert not evaluator.calls and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_models_are_sent_without_their_programs():
    """What was traced cannot be sent, and is not needed."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    batch = np.zeros((2, 4), np.float32), np.zeros((2, 1), np.float32)
    placement = tfplace.place(
        model,
        "2xP100",
        batch=batch,
        placer="seq2seq",
        budget=16,
        controllers=1,
        evaluator="grappler",
        progress=False,
    )
    assert placement.cost.source == "grappler"


@pytest.mark.parametrize("wanted", ["4", 2.5, None])
def test_a_number_of_controllers_is_a_number(problem, wanted):
    with pytest.raises(InputError, match=r"controllers=.*expected a number of processes"):
        tfplace.place(problem, placer="seq2seq", budget=10, controllers=wanted, progress=False)


class Losing(Spied):
    """Its workers are lost for ever after six trials."""

    def hand_out(self, future):
        if len(self.done) <= 6:
            return future
        lost = Future()
        lost.set_exception(WorkerLostError("a worker that ended", "one that does not"))
        return lost


@pytest.mark.parametrize("asynchronous", [False, True])
def test_controllers_that_do_not_come_back_leave_the_best_so_far(problem, asynchronous):
    placement = search_placement(
        problem, placer="seq2seq", budget=1000, controllers=Controllers(Losing(2), asynchronous=asynchronous)
    )
    assert placement.cost.peak_bytes.min() >= 0  # the simulator still tells everything
    assert placement.notes[0].startswith("after ") and "the workers stopped" in placement.notes[0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_nothing_is_drawn_for_nothing(problem, asynchronous):
    engine = Spied(2)
    search, _ = run(problem, "seq2seq", Controllers(engine, asynchronous), 96)
    assert search.evaluations == 96 and len(engine.done) == 6


class Uneven(Spied):
    """Of two trials the second is done before the first."""

    def hand_out(self, future):
        if len(self.done) % 2:
            self.late = Future()
            return self.late
        late, first = self.late, self.done[-2]
        threading.Timer(0.05, lambda: late.set_result(first.result())).start()
        return future


def test_what_went_another_way_is_not_held_against_an_asynchronous_run(problem, tmp_path):
    """Killed before the first checkpoint: what was evaluated counts, and is not compared with what is drawn now."""
    uneven = Controllers(Uneven(2), asynchronous=True)

    def end(updates):
        if updates == 2:
            raise EndError

    with RunDirectory(tmp_path, {}, keep_s=1e9) as directory, contextlib.suppress(EndError):
        run(problem, "seq2seq", uneven, each=end, directory=directory)
    with RunDirectory(tmp_path, {}, keep_s=1e9) as directory:
        again, norms = run(problem, "seq2seq", Controllers(InProcessEngine(2), asynchronous=True), directory=directory)
    assert again.evaluations == 256 and len(norms) == 14


class Idle(InProcessEngine):
    """There is nothing to do."""

    def start(self, make):
        workers = super().start(make)
        workers.submit = pytest.fail
        return workers


def test_an_asynchronous_run_that_is_over_is_over_without_a_checkpoint_too(problem, tmp_path):
    with RunDirectory(tmp_path, {}, keep_s=1e9) as directory:
        first, _ = run(problem, "seq2seq", Controllers(InProcessEngine(2), asynchronous=True), directory=directory)
    (tmp_path / "checkpoint.npz").unlink(missing_ok=True)
    with RunDirectory(tmp_path, {}, keep_s=1e9) as directory:
        again, _ = run(problem, "seq2seq", Controllers(Idle(2), asynchronous=True), directory=directory)
    assert (again.evaluations, again.best_key) == (first.evaluations, first.best_key) and again.evaluations == 256


def test_placers_without_controllers_are_refused(problem):
    with pytest.raises(InputError) as refused:
        search_placement(problem, placer="post", budget=10, controllers=Controllers(InProcessEngine(2)))
    assert refused.value.received == "controllers with placer 'post'"
    assert "hierarchical, seq2seq" in refused.value.hint


def test_a_run_with_other_controllers_is_another_run(problem, tmp_path):
    where = {"placer": "seq2seq", "budget": "16 evaluations", "run_dir": tmp_path}
    search_placement(problem, **where, controllers=Controllers(InProcessEngine(2)))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["controllers"] == 2 and config["asynchronous"] is False
    with pytest.raises(InputError, match="a run with controllers 3"):
        search_placement(problem, **where, controllers=Controllers(InProcessEngine(3)))


def test_a_grouped_study_has_grouped_replicas(problem):
    """What a controller evaluates are whole groups."""
    placer = POLICIES["seq2seq"]()
    placer.settings = dataclasses.replace(placer.settings, groups=6)
    search = Search(problem, Budget(evaluations=64), 0, controllers=Controllers(InProcessEngine(2)))
    devices = search.run(placer, "x")
    assert Simulator(problem).key(devices) == search.best_key and search.evaluations == 64
