"""Backend: where measured steps run. This process, or a cluster of workers, alike to whoever measures."""

from __future__ import annotations

from typing import Any, Protocol

from tfplace.core.stepcost import Failure


class Backend(Protocol):
    """Devices of a running TensorFlow, and sessions on them.

    Not to be shared by threads. `tfplace.measurement.backends.local` and `tfplace.measurement.backends.cluster` have
    the implementations.
    """

    @property
    def devices(self) -> tuple[str, ...]:
        """Full TensorFlow names, such as "/job:worker/replica:0/task:0/device:CPU:0"."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes that run the steps, besides this one."""

    @property
    def cores(self) -> tuple[int, ...]:
        """Processor cores the steps use, as the system numbers them; empty if they are on other machines."""

    def session(self, graph: Any, *, timeout_s: float | None = None) -> Any:
        """A new `tf.compat.v1.Session` of a graph whose ops name these devices, with state of its own.

        Nothing is moved (no soft placement) and nothing optimized after placing.

        Args:
          graph: the `tf.Graph`.
          timeout_s: what one run may take, in seconds; the backend's own default if None.

        Raises:
          tf.errors.OpError, and what else `failure_of` understands.
        """

    def end_session(self, session: Any) -> None:
        """Closes a session and frees its variables; never hangs, whatever state the workers are in."""

    def failure_of(self, error: Exception) -> Failure | None:
        """What an exception of a session of this backend means; None if it is none of the known kinds (a bug)."""

    def repair(self) -> None:
        """After a failure: makes the devices usable again (restarts what is lost). Sessions open before are void."""

    def close(self) -> None:
        """Ends what it started; calling it again does nothing."""
