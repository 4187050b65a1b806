"""TensorFlow sessions on other processes that do not hang when one of those does."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

T = TypeVar("T")

CLOSE_WAIT_S = 1.0
"""Time for a session to close; about a millisecond where all is well."""


class StillRunningError(Exception):
    """A call did not return in its time."""


class WorkerLostError(Exception):
    """A call was not made because a server it needs is gone."""


def guarded(call: Callable[[], T], limit_s: float) -> T:
    """Makes a call in a thread of its own, so that it can be given up on.

    Raises:
      StillRunningError: it takes longer; its thread lives on until it returns.
      BaseException: what the call raises.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="tfplace session", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise StillRunningError(f"no answer within {limit_s:g} s")
    if errors:
        raise errors[0]
    return results[0]


def _again_if_sent_twice(call: Callable[[], T]) -> T:
    """Runs a step, and once more if it ended because gRPC sent a worker its part of it again.

    TensorFlow refuses what a worker "received twice", and ends the step. That is rare, and says nothing of the step,
    nor of the worker, which is there.
    """
    try:
        return call()
    except tf.errors.AbortedError as error:
        if "received twice" not in error.message:
            raise
        return call()


class GuardedSession(tf.compat.v1.Session):  # type: ignore[misc]
    """A session whose calls end, whatever state the servers are in.

    TensorFlow's own time-out covers a step that the servers know. It does not cover what comes before the first one,
    creating the session and giving each server its part of the graph, nor the session's end: if a server is gone, or
    stopped, these wait for ever. They are made in a thread that can be given up on. A step that ran once is called
    directly, at no cost. A step that gRPC's sending twice put an end to is run again, once.

    Args:
      target: the master's address.
      graph: the graph.
      config: the `ConfigProto`.
      guard: makes a call and raises an error if it takes too long.
    """

    def __init__(self, target: str, graph: Any, config: Any, guard: Callable[[Callable[[], Any]], Any]) -> None:
        self._guard = guard
        self._ended = False
        super().__init__(target, graph=graph, config=config)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf.compat.v1.Session.run`. In a loop that is timed, use `make_callable`."""
        run = super().run
        return self._guard(lambda: _again_if_sent_twice(lambda: run(*args, **kwargs)))

    def make_callable(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """As `tf.compat.v1.Session.make_callable`."""
        step = self._guard(lambda: super(GuardedSession, self).make_callable(*args, **kwargs))
        known = False

        def call(*args: Any) -> Any:
            nonlocal known
            if known:
                return _again_if_sent_twice(lambda: step(*args))
            result = self._guard(lambda: _again_if_sent_twice(lambda: step(*args)))
            known = True
            return result

        return call

    def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """Closes it, or leaves that to a thread if it takes longer; calling it again does nothing."""
        if self._ended or sys.is_finalizing():  # when threads cannot start any more, and starting one would hang
            return
        self._ended = True
        with contextlib.suppress(StillRunningError, tf.errors.OpError, RuntimeError):
            guarded(super().close, wait_s)
