"""The peer: `tf.distribute.MultiWorkerMirroredStrategy` on one-core processes of this machine.

Its servers listen on all interfaces, so they get a network namespace of their own that has loopback alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

from research.benchmarks.slices_running.models import build

START_S, BUILD_S, STEP_S = 120.0, 120.0, 60.0
"""Seconds that starting, building a model and running a step may take."""

_PORTS = 20_000  # in a namespace of their own all ports are free
_SIOCSIFFLAGS, _IFF_UP, _PR_SET_PDEATHSIG = 0x8914, 1, 1


class PeerError(Exception):
    """The peer does not run here; says why."""


class Peer:
    """Processes that train copies of a model together, each with an equal part of the batch.

    Args:
      cores: one for each process.

    Raises:
      PeerError: there is no network namespace for them, or they do not start.
    """

    def __init__(self, cores):
        unshare = shutil.which("unshare")
        if unshare is None:
            raise PeerError("no network namespace: there is no unshare")
        probe = subprocess.run([unshare, "-rn", "true"], capture_output=True, text=True, check=False)
        if probe.returncode:
            raise PeerError(f"no network namespace: {probe.stderr.strip()}")
        self._process = subprocess.Popen(
            [unshare, "-rn", sys.executable, "-m", __name__, *map(str, cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        try:
            self.pids = tuple(self._read(START_S))
        except PeerError:
            self.close()
            raise

    def build(self, name, seed, steps):
        """Makes a model and runs its first steps; gives back the loss after each: of the batch, a mean over the steps.

        Raises:
          PeerError: it fails, here as in `step`.
        """
        losses = self._ask({"build": name, "seed": seed, "steps": steps}, BUILD_S)
        return [sum(each) / len(each) for each in zip(*losses, strict=True)]

    def step(self):
        """Seconds of a step: of the process that takes longest."""
        return max(self._ask({"step": 1}, STEP_S))

    def close(self):
        """Ends the processes."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children end with it
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, what, limit_s):
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
        except BrokenPipeError as error:
            raise PeerError("it ended") from error
        return self._read(limit_s)

    def _read(self, limit_s):
        answer = _line(self._process.stdout.fileno(), time.monotonic() + limit_s)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer["answer"]


def _line(descriptor, deadline):
    """The next line, as data."""
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return {"error": "no answer in time"}
        more = os.read(descriptor, 1 << 16)
        if not more:
            return {"error": "it ended"}
        text += more
    return json.loads(text)


def lead(cores):
    """In the namespace: starts a process a core, and hands on what is asked and what they answer."""
    _raise_loopback()
    workers = [_start(task, cores) for task in range(len(cores))]
    _tell({"answer": [worker.pid for worker in workers]})
    try:
        for line in sys.stdin.buffer:
            for worker in workers:
                worker.stdin.write(line)
            deadline = time.monotonic() + max(START_S, BUILD_S, STEP_S)
            answers = [_line(worker.stdout.fileno(), deadline) for worker in workers]
            failed = [answer for answer in answers if "error" in answer]
            _tell(failed[0] if failed else {"answer": [answer["answer"] for answer in answers]})
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anything:
        fcntl.ioctl(anything, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _start(task, cores):
    addresses = [f"127.0.0.1:{_PORTS + i}" for i in range(len(cores))]
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": task}}
    return subprocess.Popen(
        [sys.executable, "-m", __name__ if __name__ != "__main__" else __spec__.name, "worker", str(cores[task])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "TF_CONFIG": json.dumps(config)},
    )


def _tell(what):
    sys.stdout.buffer.write(json.dumps(what).encode() + b"\n")
    sys.stdout.buffer.flush()


def work(core):
    """One process: builds models and runs steps as it is asked."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.sched_setaffinity(0, {core})
    try:
        import keras
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(4)  # as the workers of a measuring cluster have
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        step = None
        for line in sys.stdin.buffer:
            asked = json.loads(line)
            if "build" in asked:
                step = _step(strategy, keras, tf, asked["build"], asked["seed"])
                _tell({"answer": [float(step()) for _ in range(asked["steps"])]})
            else:
                start = time.perf_counter()
                step()
                _tell({"answer": time.perf_counter() - start})
    except Exception as error:  # whatever it is, it belongs into the table
        _tell({"error": f"{type(error).__name__}: {error}"})
        raise


def _step(strategy, keras, tf, name, seed):
    keras.backend.clear_session()
    with strategy.scope():
        model, (x, y) = build(name, keras, seed)
    task, tasks = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    x, y = (tf.constant(each[task::tasks]) for each in (x, y))
    # what `fit` runs for a batch
    run = tf.function(lambda x, y: strategy.run(model.train_step, args=((x, y),)), jit_compile=False)
    return lambda: tf.nest.map_structure(lambda each: each.numpy(), run(x, y))["loss"]


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(int(sys.argv[2]))
    else:
        lead([int(core) for core in sys.argv[1:]])
