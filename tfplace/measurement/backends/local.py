"""Measured steps on several devices of one process: this one's own, or logical devices that act like cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfplace.core.stepcost import Failure
from tfplace.engines.cores import cores_apart, own_cores
from tfplace.errors import ClusterError
from tfplace.execution.devices import available_devices
from tfplace.execution.session import session_config
from tfplace.measurement.backends.cluster import Cluster
from tfplace.measurement.backends.failures import failure_of
from tfplace.measurement.backends.processes import WorkerProcesses
from tfplace.measurement.backends.worker import Settings

TIMEOUT_S = 120.0


class LocalDevices:
    """The devices of the TensorFlow in this process: CPU, GPUs and logical devices. A backend.

    Logical CPU devices share one pool of threads: however ops are spread over them, they use the same cores, and such
    placements take the same time. `ChainedLogicalDevices` is for those.

    A kernel that never ends cannot be ended from within its own process: it blocks this backend in spite of a time-out,
    which only ends steps that wait for something. On a cluster it ends.

    Args:
      timeout_s: seconds a run may take, where `session` is not told.
      inter_op: ops that are started at once, on all devices together; by default as many as TensorFlow thinks best.
    """

    pids: tuple[int, ...] = ()

    def __init__(self, timeout_s: float = TIMEOUT_S, inter_op: int | None = None) -> None:
        self.devices = available_devices()
        self._timeout_s = timeout_s
        self._inter_op = inter_op

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
        if self._inter_op is not None:
            config.inter_op_parallelism_threads = self._inter_op
            config.use_per_session_threads = True
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


class ChainedLogicalDevices:
    """Logical CPU devices of one process, each of which runs one op at a time. A backend.

    TensorFlow gives all logical CPU devices of a process the same threads, so that an op runs whenever a core is free,
    whatever its device. Here the ops of each device are chained: each waits for the one before it in the order of the
    simulated schedule. With one thread per op, N devices then act like N single cores between which transfers are
    nearly free. What that leaves out: TensorFlow's freedom to run what is ready first, and the cost of communication.
    What it needs: a graph without loops and branches. A `Cluster` has none of these limits.

    They are those of a worker process, because a process has one setting of threads per op for its whole life.

    Args:
      count: how many.
      cores: cores of the worker, by default one for each device.
      memory_limit: bytes it may allocate beyond what it has after its start, for all devices together.
      timeout_s: seconds a run may take, where `session` is not told.

    Raises:
      ClusterError: more devices than cores, or the worker does not start.
    """

    def __init__(
        self,
        count: int = 2,
        *,
        cores: Sequence[int] | None = None,
        memory_limit: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        chosen = cores_apart()[:count] if cores is None else tuple(cores)
        if not 1 <= count <= len(chosen):
            raise ClusterError(
                f"{count} chained devices on {len(chosen)} cores", "at least one device, and a core for each"
            )
        settings = Settings(cores=chosen, memory_limit=memory_limit, inter_op=2 * count, intra_op=1, cpus=count)
        processes = WorkerProcesses()
        try:
            started = processes.launch([settings])
            self._cluster = Cluster([worker.address for worker in started], started, processes, timeout_s)
        except BaseException:
            processes.close()
            raise
        self.devices = self._cluster.devices

    def __repr__(self) -> str:
        return f"ChainedLogicalDevices({len(self.devices)})"

    def __enter__(self) -> ChainedLogicalDevices:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """The worker."""
        return self._cluster.pids

    @property
    def cores(self) -> tuple[int, ...]:
        """Those the worker is pinned to."""
        return self._cluster.cores

    def session(self, graph: Any, *, timeout_s: float | None = None) -> Any:
        """A session on the worker; see `Cluster.session`."""
        return self._cluster.session(graph, timeout_s=timeout_s)

    def end_session(self, session: Any) -> None:
        """Closes it."""
        self._cluster.end_session(session)

    def failure_of(self, error: Exception) -> Failure | None:
        """What an exception of a run means; see `Cluster.failure_of`."""
        return self._cluster.failure_of(error)

    def repair(self) -> None:
        """Restarts the worker if need be."""
        self._cluster.repair()

    def close(self) -> None:
        """Ends the worker; calling it again does nothing."""
        self._cluster.close()
