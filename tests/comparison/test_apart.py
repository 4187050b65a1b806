"""Comparisons on the workers of an engine: the same runs, and what was found is kept however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

import distributed
import numpy as np
import pytest

import tfplace
from tests.engines.processes import number_in, parent_of
from tfplace.comparison.comparison import BEST, RUNS, compare_placers
from tfplace.engines.dask_workers import LOOPBACK, DaskEngine
from tfplace.engines.in_process import InProcessEngine
from tfplace.engines.process_workers import ProcessEngine
from tfplace.errors import WorkersError
from tfplace.testing import random_problem

PLACERS = ("annealing", "metis")

SLOW = """
import os, time
from pathlib import Path

class Slow:
    '''Waits until it is killed, the first time.'''

    citation = "none"

    def place(self, context):
        begun = Path(__file__).with_name("begun")
        if not begun.exists():
            begun.write_text(str(os.getpid()))
            time.sleep(60)
        return context.problem.allowed.argmax(axis=1)

class Killed(Slow):
    def place(self, context):
        os._exit(3)
"""


@pytest.fixture(scope="module")
def problem():
    return random_problem(np.random.default_rng(3), 20, 2)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of placers, in a folder of its own."""
    (tmp_path / "placers").mkdir()
    (tmp_path / "placers" / "own_placers.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path / "placers")
    monkeypatch.delitem(sys.modules, "own_placers", raising=False)  # of the test before
    return tmp_path / "placers"


def compared(problem, engine=None, placers=PLACERS, **more):
    return compare_placers(problem, placers, budget=60, seeds=2, engine=engine, **more)


def facts(comparison):
    """Everything but times."""
    told = comparison.to_dict()
    for row in told["placers"].values():
        del row["seconds"]
    return told


def test_any_number_of_workers_finds_the_same(problem):
    here = compared(problem)
    for engine in (InProcessEngine(1), ProcessEngine(1), ProcessEngine(2)):
        there = compared(problem, engine)
        assert facts(there) == facts(here) and there.best.diff(here.best) == {}
        assert (there.best.placer, there.best.seed) == (here.best.placer, here.best.seed)


def test_another_number_of_workers_goes_on(problem, tmp_path):
    whole = compared(problem)
    compared(problem, ProcessEngine(1), placers=("metis",), folder=tmp_path)
    told = []
    again = compared(problem, ProcessEngine(2), folder=tmp_path, tell=told.append)
    assert facts(again) == facts(whole)
    assert told[0] == "7 of 9 runs are kept from an earlier call" and told[2].startswith("0 of 2 runs are done")


def test_a_placer_that_ends_every_worker_stops_no_other(problem, own):
    found = compared(problem, ProcessEngine(2), placers=("own_placers:Killed", "metis"))
    assert "ended 3 times in one task" in found.troubles()["own_placers:Killed"]
    assert found.whole and "metis" in found.ranked()


class Stopping(InProcessEngine):
    """Something happens after four runs."""

    def __init__(self, error):
        super().__init__(2)
        self.error = error

    def start(self, make):
        workers = super().start(make)
        submit, done = workers.submit, []

        def submitted(*task):
            done.append(submit(*task))
            if len(done) > 4:
                done[-1] = type(done[-1])()
                done[-1].set_exception(self.error)
            return done[-1]

        workers.submit = submitted
        return workers


@pytest.mark.parametrize("error", [KeyboardInterrupt(), WorkersError("a scheduler that is lost", "one that stays")])
def test_what_was_run_before_it_was_stopped_is_kept(problem, tmp_path, error):
    found = compared(problem, Stopping(error), folder=tmp_path)
    assert not found.whole and sum(map(len, found.results.runs.values())) == 4
    assert found.best is not None and (tmp_path / BEST).exists()
    assert ("stopped before everything was run: received a scheduler" in found.summary()) == isinstance(
        error, WorkersError
    )
    assert facts(compared(problem, folder=tmp_path)) == facts(compared(problem))


def test_nothing_found_before_the_workers_were_lost_is_an_error(problem):
    class Lost(Stopping):
        def start(self, make):
            raise self.error

    with pytest.raises(WorkersError, match="scheduler that is lost"):
        compared(problem, Lost(WorkersError("a scheduler that is lost", "one that stays")))


@pytest.mark.cluster
def test_on_dask_a_killed_worker_changes_nothing(problem, own, tmp_path):
    here = {"host": LOOPBACK, "dashboard_address": f"{LOOPBACK}:0", "silence_logs": 50}
    wanted = {"placers": ("own_placers:Slow", *PLACERS), "folder": tmp_path / "out"}

    def kill():
        """Once the slow placer is at work."""
        os.kill(parent_of(number_in(own / "begun")), signal.SIGKILL)

    threading.Thread(target=kill).start()

    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(distributed.LocalCluster(n_workers=2, threads_per_worker=1, **here))
        client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        there = compared(problem, DaskEngine(client), **wanted)
    assert (own / "begun").exists() and (tmp_path / "out" / RUNS).exists()
    assert facts(there) == facts(compared(problem, placers=wanted["placers"]))


def test_the_public_function_takes_an_engine(problem):
    wanted = {"placers": ("metis",), "budget": 20, "seeds": 1, "progress": False}
    found = tfplace.compare(problem, **wanted, engine="processes:1")
    assert facts(found) == facts(tfplace.compare(problem, **wanted))
