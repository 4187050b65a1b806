"""A placed step that can be run, timed and traced."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.backends.program import StepGraph
from tfplace.measurement.backends.stepstats import RECEIVES

_TRACES = 5  # of steps of under a millisecond one in six was seen to lack transfers


class Running:
    """A placed step in a session of its own.

    Args:
      program: the step, placed; to be left alone until this is closed.
      backend: whose devices it is placed on.
      timeout_s: seconds a step may take; by default the backend's.

    Raises:
      What `backend.failure_of` understands, here as in every call.
    """

    def __init__(self, program: StepGraph, backend: Backend, timeout_s: float | None) -> None:
        self._program = program
        self._backend = backend
        self._session = backend.session(program.tf_graph, timeout_s=timeout_s)
        try:
            program.write(self._session)
            self._step = self._session.make_callable(program.targets)
        except BaseException:
            self.close()
            raise

    def __call__(self) -> float:
        """Runs one step and returns its seconds."""
        return seconds_of(self._step)

    def reset(self) -> None:
        """Gives the variables their first values."""
        self._program.write(self._session)

    def traced(self) -> Any:
        """`RunMetadata` of a step.

        TensorFlow's master does not wait until its workers record what they receive, so transfers of a short step may
        be missing: between processes this is the one of several steps that has the most.
        """
        tasks = {device.partition("/device:")[0] for device in self._backend.devices}
        return max((self._trace() for _ in range(_TRACES if len(tasks) > 1 else 1)), key=_received)

    def _trace(self) -> Any:
        metadata = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        self._session.run(self._program.targets, options=options, run_metadata=metadata)
        return metadata

    def close(self) -> None:
        """Ends the session; calling it again does nothing."""
        self._step = None
        session, self._session = self._session, None
        if session is not None:
            self._backend.end_session(session)


def _received(metadata: Any) -> int:
    """How many tensors a traced step says its processes received."""
    return sum(node.node_name in RECEIVES for part in metadata.step_stats.dev_stats for node in part.node_stats)


def seconds_of(step: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def empty_step_s(backend: Backend, device: str, repeats: int = 30) -> float:
    """Median seconds of a step of one op that does nothing on a device: what a step takes without its work."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(device):
        nothing = tf.no_op()
    session = backend.session(graph)
    try:
        step = session.make_callable([nothing])
        step()
        return float(np.median([seconds_of(step) for _ in range(repeats)]))
    finally:
        backend.end_session(session)
