"""Children: messages, how they end, and that none outlives its parent."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.engines import children
from tests.engines.test_workers import gone
from tfplace.engines.child_process import ChildEndedError, ChildProcess, ChildTimeoutError


@contextlib.contextmanager
def started(serve, **environment):
    child = ChildProcess(serve, environment)
    try:
        yield child
    finally:
        child.close()


def test_messages_of_any_length_go_both_ways_and_what_it_prints_is_none():
    with started(children.echo) as child:
        for message in (b"", b"\0\n", os.urandom(3_000_000)):
            assert child.ask(message) == message
        child.send(b"1")
        child.send(b"2")
        assert (child.receive(), child.receive()) == (b"1", b"2")


def test_what_it_prints_is_in_its_log():
    with started(children.echo) as child:
        child.send(b"")
        child.receive()
        assert child.read_log() == "this is no message\n"
        assert child.read_log() == ""


def test_it_has_the_environment_and_the_path_but_nothing_of_the_current_directory(monkeypatch, tmp_path):
    (tmp_path / "pickle.py").write_text("raise ImportError('not ours')")
    monkeypatch.chdir(tmp_path)
    with started(children.found, SAID="as told") as child:
        assert child.ask(b"") == b"as told False"


def test_how_it_ended_is_told_with_the_line_that_tells_most():
    with (
        started(children.fail) as child,
        pytest.raises(ChildEndedError, match=r"^with status 1: ValueError: so it is$"),
    ):
        child.ask(b"")
    with started(children.echo) as child:
        os.kill(child.pid, signal.SIGSEGV)
        with pytest.raises(ChildEndedError, match=r"^by signal 11"):
            child.ask(b"")
        assert child.close().startswith("by signal 11")  # as before
        assert child.ended


def test_one_that_does_not_even_read_is_ended_in_time():
    begin = time.monotonic()
    with started(children.deaf) as child, pytest.raises(ChildTimeoutError, match=r"no answer within 0\.5 s"):
        child.ask(bytes(1_000_000), timeout_s=0.5)
    assert time.monotonic() - begin < 60 and child.ended


def test_an_interrupted_question_ends_it():
    def interrupt():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with started(children.deaf) as child:
        threading.Timer(0.5, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            child.ask(b"")
        assert child.ended


def test_another_thread_can_kill_it():
    with started(children.deaf) as child:
        threading.Timer(0.3, child.kill).start()
        with pytest.raises(ChildEndedError, match="by signal 9"):
            child.ask(b"")
        child.kill()  # its number may be another's by now


def test_one_that_ends_by_itself_is_given_the_time():
    with started(children.echo) as child:
        assert child.ask(b"x") == b"x"
        assert child.close(grace_s=10).startswith("with status 0")


def test_it_ends_with_its_object():
    child = ChildProcess(children.tell_and_stay)
    pid = int(child.receive())
    del child
    gc.collect()
    assert gone(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends when it looks at its pipe")
def test_it_ends_with_a_killed_parent_and_with_the_thread_that_started_it():
    program = (
        "from tests.engines import children; from tfplace.engines.child_process import ChildProcess; import time\n"
        "child = ChildProcess(children.tell_and_stay); print(int(child.receive()), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid)
    found = []

    def start():
        found.append(ChildProcess(children.tell_and_stay))
        found[0].receive()

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert gone(found[0].pid)
    assert found[0].close() == "by signal 9"


def test_one_that_cannot_be_started_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(OSError, match="No such file"):
        ChildProcess(children.echo)
