"""Small made-up steps, timed in turns: what a calibration consists of."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.core.arrays import FloatArray
from tfplace.errors import ApplyError
from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.protocol.counters import process_seconds

Build = Callable[[], Sequence[Any]]
"""Adds ops to the default graph and returns those a step must run."""

WARMUP = 2


@dataclass(frozen=True, eq=False)
class Timings:
    """Steps that took turns. [R] turns, [B] steps, [P] processes.

    Attributes:
      step_s: [R, B] seconds from the call to its return.
      core_s: [R, B, P] processor seconds of each of the backend's processes meanwhile.
    """

    step_s: FloatArray
    core_s: FloatArray

    def extra_s(self, more: int = 1, less: int = 0) -> float:
        """How much longer one step's fastest turn took than another's: what else the machine does only adds to both."""
        return float(self.step_s[:, more].min() - self.step_s[:, less].min())

    def extra_core_s(self, process: int, more: int = 1, less: int = 0) -> float:
        """Median over the turns of a process's processor seconds that one step took more than another."""
        return float(np.median(self.core_s[:, more, process] - self.core_s[:, less, process]))


def time_steps(backend: Backend, builds: Sequence[Build], repeats: int) -> Timings:
    """Runs several made-up steps in turns.

    Args:
      backend: where they run.
      builds: [B] each step's ops.
      repeats: turns that count; two are run before them.

    Raises:
      ApplyError: a step fails.
    """
    sessions: list[Any] = []
    try:
        with failures_told(backend):
            steps = [_open(backend, build, sessions) for build in builds]
            turns = [[_timed(backend, step) for step in steps] for _ in range(WARMUP + repeats)][WARMUP:]
    finally:
        for session in sessions:
            backend.end_session(session)
    step_s = [[seconds for seconds, _ in turn] for turn in turns]
    core_s = [[cores for _, cores in turn] for turn in turns]
    return Timings(np.array(step_s), np.array(core_s).reshape(repeats, len(builds), -1))


@contextlib.contextmanager
def failures_told(backend: Backend) -> Iterator[None]:
    """Makes of what a session raises an error that says what a calibration needs.

    Raises:
      ApplyError: a step fails.
    """
    try:
        yield
    except Exception as error:
        failure = backend.failure_of(error)
        if failure is None:
            raise
        raise ApplyError(f"a calibration step that fails: {failure}", "devices that run it") from error


def _open(backend: Backend, build: Build, sessions: list[Any]) -> Callable[[], Any]:
    graph = tf.Graph()
    with graph.as_default():
        targets = list(build())
        initial = [v.initializer for v in tf.compat.v1.global_variables()]
    session = backend.session(graph)
    sessions.append(session)
    session.run(initial)
    step: Callable[[], Any] = session.make_callable(targets)
    return step


def _timed(backend: Backend, step: Callable[[], Any]) -> tuple[float, list[float]]:
    before = [process_seconds(pid) for pid in backend.pids]
    began = time.perf_counter()
    step()
    took = time.perf_counter() - began
    return took, [process_seconds(pid) - b for pid, b in zip(backend.pids, before, strict=True)]


def process_of(backend: Backend, device: str) -> int | None:
    """Which of the backend's processes is a device, its cores and its memory.

    None for this process, for those of other machines, and for GPUs, of which their process's seconds and bytes tell
    nothing.
    """
    spec = tf.DeviceSpec.from_string(device)
    known = spec.device_type == "CPU" and spec.task is not None and spec.task < len(backend.pids)
    return int(spec.task) if known else None


def value(device: str, shape: Sequence[int], dtype: Any = tf.float32, fill: float = 1.0) -> Any:
    """A tensor read from a variable on a device."""
    with tf.device(device):
        number = len(tf.compat.v1.global_variables())
        variable = tf.compat.v1.get_variable(
            f"value_{number}",
            initializer=lambda: tf.fill(list(shape), tf.constant(fill, dtype)),
            use_resource=True,
            trainable=False,
        )
        return variable.read_value()


def products(device: str, count: int, side: int, dtype: Any = tf.float32) -> list[Any]:
    """A chain of products of square matrices on a device; all their values stay what they are."""
    w = value(device, [side, side], dtype, 1 / side)
    chain = [w]
    with tf.device(device):
        for _ in range(count):
            chain.append(tf.matmul(chain[-1], w))
    return chain[1:]
