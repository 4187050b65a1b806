"""Grappler in a process of its own: same answers, no orphans, and its end is an error and no more."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tensorflow as tf

from grappler_bridge.errors import GrapplerError, GrapplerInputError
from grappler_bridge.step import Step, StepGraph
from grappler_bridge.transfers import Link, infer_tensors
from tests.grappler_bridge.graphs import gpus, metagraph, placeholder
from tfplace.measurement.grappler_process import GrapplerLostError, GrapplerProcess, GrapplerTimeOutError

LAYERS = 4


def chain_step(spoil=lambda meta: None):
    def build():
        x = placeholder(64, 64)
        for i in range(LAYERS):
            x = tf.exp(x, name=f"layer{i}")
        return x

    meta = metagraph(build, None)
    devices = gpus(2)
    pairs = itertools.permutations([d.name for d in devices], 2)
    links = tuple(Link(a, b, 1e9, 1e-5, (f"{a} out", f"{b} in")) for a, b in pairs)
    tensors = infer_tensors(meta)
    spoil(meta)
    ops = tuple(node.name for node in meta.graph_def.node)
    return Step(meta.SerializeToString(), ops, tuple(devices), links, tensors)


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """Started where there is a file of a name that Python's own modules have, which it must not load."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "random.py").write_text("raise ImportError('not ours')")
    process = GrapplerProcess(chain_step())
    with contextlib.chdir(folder):
        assert process.own_s(ALTERNATING)
    yield process
    process.close()


ALTERNATING = [0, 0, 1, 0, 1]


def running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def test_it_says_what_is_said_here(process):
    here = StepGraph(chain_step())
    assert process.own_s(ALTERNATING) == here.own_s(ALTERNATING)
    figures = process.figures(ALTERNATING)
    assert figures == here.figures(ALTERNATING)
    assert figures.moved_bytes == 3 * 64 * 64 * 4
    assert figures.step_s > figures.channel_s["GPU:0 out"][0][1] * 3
    assert figures.peak_bytes[2] == 0


def test_a_crash_is_an_error_that_says_how_and_the_next_question_is_answered(process):
    before = process.own_s(ALTERNATING)
    os.kill(process.pid, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (process.pid, signal.SIGSEGV)).start()
    threading.Timer(0.3, os.kill, (process.pid, signal.SIGCONT)).start()
    with pytest.raises(GrapplerLostError, match="by signal 11"):
        process.own_s(ALTERNATING)
    assert process.pid is None
    assert process.own_s(ALTERNATING) == before


def test_a_process_that_cannot_start_is_lost(monkeypatch, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no tensorflow here')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(GrapplerLostError, match=r"with status 1.*no tensorflow here"):
        GrapplerProcess(chain_step()).own_s(ALTERNATING)


def test_an_answer_that_takes_too_long_is_not_waited_for():
    process = GrapplerProcess(chain_step(), start_s=0.01)
    with pytest.raises(GrapplerTimeOutError, match=r"within 0\.01 s"):
        process.own_s(ALTERNATING)
    assert process.pid is None


def test_errors_of_the_process_are_raised_here():
    def spoil(meta):
        meta.graph_def.node[-1].input[0] = "layer0:7"

    process = GrapplerProcess(chain_step(spoil))
    try:
        with pytest.raises(GrapplerError):
            process.own_s([0] * (LAYERS + 1))
        assert process.pid is not None
    finally:
        process.close()


def test_what_is_refused_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(GrapplerInputError("a", "b", "c")))
    assert (error.received, error.expected, error.hint) == ("a", "b", "c")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems wait for the next look at the pipe")
def test_it_ends_with_a_killed_parent():
    program = (
        "import os, sys, time\n"
        "from tests.measurement.test_grappler_process import ALTERNATING, chain_step\n"
        "from tfplace.measurement.grappler_process import GrapplerProcess\n"
        "process = GrapplerProcess(chain_step())\n"
        "process.own_s(ALTERNATING)\n"
        "os.kill(process.pid, 19)\n"  # stopped: it cannot look at the pipe
        "print(process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=root, text=True)
    pid = int(parent.stdout.readline())
    assert running(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: not running(pid))
