"""Engines: every one does the same; processes come back when they are lost, and end with whoever started them."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, wait

import pytest

from tests.engines import tasks
from tests.engines.conformance import EngineConformance
from tests.engines.processes import gone
from tfplace.engines.in_process import InProcessEngine
from tfplace.engines.process_workers import ProcessEngine
from tfplace.errors import InputError, TfplaceError, WorkersError


class TestInProcess(EngineConformance):
    @pytest.fixture
    def engine(self):
        return InProcessEngine(2)


class TestProcesses(EngineConformance):
    @pytest.fixture
    def engine(self):
        return ProcessEngine(2)


@pytest.mark.parametrize("engine", [InProcessEngine, ProcessEngine])
def test_no_workers_are_too_few(engine):
    with pytest.raises(InputError, match="0 workers; expected at least 1"):
        engine(0)


@pytest.fixture
def crew():
    with contextlib.closing(ProcessEngine(2).start(dict)) as crew:
        yield crew


def test_each_has_its_part_of_the_processors(crew):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    parts = [f.result(30) for f in [crew.submit(tasks.processors) for _ in range(8)]]
    assert {p for part in parts for p in part} == os.sched_getaffinity(0)
    assert len({*parts}) == 2


def test_what_cannot_be_sent_is_refused(crew):
    with pytest.raises(InputError, match="cannot be sent to another process"):
        crew.submit(lambda own: 1)
    with pytest.raises(InputError, match="cannot be sent to another process"):
        ProcessEngine(1).start(lambda: 1)


def test_what_cannot_be_made_is_said_with_the_first_task():
    with contextlib.closing(ProcessEngine(1).start(functools.partial(tasks.refuse, None, "a thing"))) as crew:
        for _ in range(2):
            with pytest.raises(InputError, match="a thing"):
                crew.submit(tasks.processors).result(30)


def test_what_cannot_be_found_is_said(crew, monkeypatch):
    """As a function of a script would be, which its workers do not run."""

    def ours(own):
        return 1

    ours.__module__, ours.__qualname__ = tasks.__name__, "ours"
    monkeypatch.setattr(tasks, "ours", ours, raising=False)
    with pytest.raises(InputError, match="a worker cannot find"):
        crew.submit(ours).result(30)


def test_a_killed_worker_costs_its_task_only(crew, tmp_path):
    """The first to take the task is killed in the middle; the task is done by the next."""
    future = crew.submit(tasks.slowly_the_first_time, tmp_path / "begun")
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    others = [crew.submit(operator.or_, {i: i}) for i in range(4)]
    os.kill(int((tmp_path / "begun").read_text()), signal.SIGKILL)
    assert future.result(30) == "done"
    assert [f.result(30) for f in others] == [{i: i} for i in range(4)]
    assert crew.count == 2


def test_one_that_was_killed_while_it_had_nothing_to_do_is_replaced(crew):
    before = {crew.submit(tasks.pid).result(30) for _ in range(20)}
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    after = {crew.submit(tasks.pid).result(30) for _ in range(20)}
    assert not before & after


def test_a_task_that_ends_every_worker_is_an_error(crew):
    with pytest.raises(
        WorkersError, match=r"ended 3 times in one task, the last time with status 3: these are my last words"
    ):
        crew.submit(tasks.die).result(30)
    assert crew.submit(operator.or_, {1: 1}).result(30) == {1: 1}


def test_workers_join_and_leave(crew):
    crew.resize(3)
    assert crew.count == 3
    slow = [crew.submit(tasks.nap, 1.0) for _ in range(3)]
    assert len({f.result(30) for f in slow}) == 3  # one each
    crew.resize(1)
    assert crew.count == 1
    assert len({f.result(30) for f in [crew.submit(tasks.nap, 0.05) for _ in range(6)]}) == 1


def test_closing_ends_them_in_the_middle_of_a_task(crew):
    running = [crew.submit(tasks.nap, 60.0) for _ in range(2)]
    waiting = crew.submit(tasks.nap, 60.0)
    while not all(f.running() for f in running) or len(crew.pids) < 2:
        time.sleep(0.01)
    pids = crew.pids
    crew.close()
    crew.close()
    for future in running:
        with pytest.raises(WorkersError, match="closed"):
            future.result(30)
    with pytest.raises(CancelledError):
        waiting.result(30)
    assert all(gone(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they end with their task")
def test_they_end_with_the_process_that_started_them():
    program = (
        "from tests.engines import tasks; from tfplace.engines.process_workers import ProcessEngine; import time\n"
        "crew = ProcessEngine(1).start(dict)\n"
        "print(crew.submit(tasks.pid).result(), flush=True); crew.submit(tasks.nap, 60.0); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid)


def test_ctrl_c_is_not_for_them(crew):
    future = crew.submit(tasks.nap, 0.5)
    while not future.running() or not crew.pids:
        time.sleep(0.01)
    assert all(os.getpgid(pid) != os.getpgid(0) for pid in crew.pids)
    assert future.result(30)


def test_errors_that_cannot_be_sent_are_told(crew):
    with pytest.raises(TfplaceError, match="UnsendableError in a worker: as it is") as caught:
        crew.submit(tasks.raise_unsendable).result(30)
    assert "in raise_unsendable" in caught.value.__notes__[0]
    with pytest.raises(TfplaceError, match="in a worker"):
        crew.submit(tasks.raise_with_a_lock).result(30)


def test_nothing_is_taken_after_the_end(crew):
    crew.close()
    with pytest.raises(WorkersError, match="workers that are closed"):
        crew.submit(tasks.pid)
    with pytest.raises(WorkersError, match="workers that are closed"):
        crew.resize(2)


def test_fewer_than_one_is_refused(crew):
    with pytest.raises(InputError, match="0 workers; expected at least 1"):
        crew.resize(0)


def test_who_waits_for_a_task_that_is_cancelled_is_woken(crew):
    futures = [crew.submit(tasks.nap, 60.0) for _ in range(4)]
    threading.Timer(0.5, crew.close).start()
    assert not wait(futures, 30).not_done


def test_a_worker_is_missed_though_what_it_started_goes_on(crew, tmp_path):
    future = crew.submit(tasks.start_another_and_wait, tmp_path / "begun")
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    os.kill(int((tmp_path / "begun").read_text()), signal.SIGKILL)
    assert future.result(30) == "done"


def test_one_that_stands_still_can_be_closed():
    """It does not even read what it is to make."""
    crew = ProcessEngine(1).start(functools.partial(bytes, 10_000_000))
    crew.submit(len).result(30)
    os.kill(crew.pids[0], signal.SIGSTOP)
    future = crew.submit(operator.eq, bytes(10_000_000))
    time.sleep(0.2)
    crew.close()
    with pytest.raises(WorkersError):
        future.result(30)


def test_each_has_the_processors_of_one_that_left(crew):
    for _ in range(4):
        crew.resize(1)
        while len(crew._processes) > 1:
            time.sleep(0.01)
        crew.resize(2)
        assert sorted(crew._processes) == [0, 1]
