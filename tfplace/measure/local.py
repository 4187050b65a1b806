"""Measured steps on this process's own devices."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfplace.apply.devices import available_devices
from tfplace.apply.session import session_config
from tfplace.core.stepcost import Failure
from tfplace.measure.failures import failure_of
from tfplace.measure.interference import own_cores

TIMEOUT_S = 120.0


class LocalDevices:
    """The devices of the TensorFlow in this process: CPU, GPUs and logical devices. A backend.

    Logical CPU devices share one pool of threads: however ops are spread over them, they use the same cores, and such
    placements take the same time. `ChainedLogicalDevices` is for those.

    A kernel that never ends cannot be ended from within its own process: it blocks this backend in spite of a time-out,
    which only ends steps that wait for something. On a cluster it ends.

    Args:
      timeout_s: seconds a run may take, where `session` is not told.
    """

    pids: tuple[int, ...] = ()

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.devices = available_devices()
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"LocalDevices({len(self.devices)} devices)"

    @property
    def cores(self) -> tuple[int, ...]:
        """Those this process may use."""
        return own_cores()

    def session(self, graph: Any, *, timeout_s: float | None = None) -> Any:
        """A session on this process's devices, with state of its own."""
        config = session_config()
        config.operation_timeout_in_ms = int(1000 * (timeout_s or self._timeout_s))
        return tf.compat.v1.Session(graph=graph, config=config)

    def end_session(self, session: Any) -> None:
        """Closes it."""
        session.close()

    def failure_of(self, error: Exception) -> Failure | None:
        """What an exception of a run means; None if it is no error of TensorFlow's or of memory."""
        return failure_of(error)

    def repair(self) -> None:
        """Nothing is lost in a process that lives on."""

    def close(self) -> None:
        """Nothing was started."""
