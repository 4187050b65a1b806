"""Cluster: worker processes, here or on other machines, on which placed steps run; see docs/reference/workers.md."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfplace.core.stepcost import Failure, FailureKind
from tfplace.engines.cores import cores_apart
from tfplace.engines.sockets import ANSWER_S, RETURN_S, answers, await_answers, worker_addresses
from tfplace.errors import ClusterError
from tfplace.measurement.backends.chief import chief_for, session_config
from tfplace.measurement.backends.failures import failure_of
from tfplace.measurement.backends.guarded import (
    CLOSE_WAIT_S,
    GuardedSession,
    StillRunningError,
    WorkerLostError,
    guarded,
)
from tfplace.measurement.backends.processes import Worker, WorkerProcesses
from tfplace.measurement.backends.worker import Settings

TIMEOUT_S = 120.0
"""Time for a step, its graph's building included."""

GRACE_S = 2.0
"""What a call gets beyond its time-out, for TensorFlow to keep the time-out by itself."""

_END_S, _PAUSE_S, _ATTEMPTS = 1.0, 0.2, 3
_NO_MEMORY = ("bad_alloc", "cannot allocate memory", "pthread_create() failed")


class Cluster:
    """TensorFlow servers that run steps for this process. A backend for measuring.

    Use `Cluster.start` or `Cluster.connect`; close it, or use it in a `with` statement. What it started ends with this
    process in any case. Not to be shared by threads.

    Attributes:
      devices: full TensorFlow names, by worker, its CPU first.
      restarts: workers restarted so far. Sessions opened before the last restart are void.
    """

    def __init__(
        self, addresses: Sequence[str], workers: Sequence[Worker], processes: WorkerProcesses | None, timeout_s: float
    ) -> None:
        self._addresses = list(addresses)
        self._workers = list(workers)
        self._processes = processes
        self._timeout_s = timeout_s
        self._suspects: set[int] = set()
        self._sessions: list[GuardedSession] = []
        self._end = weakref.finalize(self, _end, self._sessions, processes)
        self.restarts = 0
        self._chief = chief_for(addresses)
        self.devices = self._meet()

    @classmethod
    def start(
        cls,
        workers: int = 2,
        *,
        cores: Sequence[Sequence[int]] | None = None,
        memory_limit: int | None = None,
        inter_op: int = 4,
        intra_op: int = 1,
        gpus: Sequence[str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Cluster:
        """Starts workers on this machine, which hear nothing from outside of it.

        Args:
          workers: how many.
          cores: for each worker the CPU cores it is pinned to; by default one core each.
          memory_limit: bytes each may allocate beyond what it has after its start.
          inter_op: threads of a worker that run ops side by side; with 1, an op that computes keeps the worker from
            sending and receiving.
          intra_op: threads within an op.
          gpus: for each worker the value of its CUDA_VISIBLE_DEVICES, "" for none; by default none have GPUs.
          timeout_s: seconds a step may take, where `session` is not told.

        Raises:
          ClusterError: more workers than cores, a core that is not there, or workers that do not start.
        """
        pinned = _cores(workers, cores)
        visible = list(gpus) if gpus is not None else [""] * workers
        if len(visible) != workers:
            raise ClusterError(f"gpus for {len(visible)} workers", f"gpus for each of {workers} workers")
        settings = [
            Settings("127.0.0.1", 0, own, memory_limit, inter_op, intra_op, seen)
            for own, seen in zip(pinned, visible, strict=True)
        ]
        processes = WorkerProcesses()
        try:
            started = processes.launch(settings)
            return cls([w.address for w in started], started, processes, timeout_s)
        except BaseException:
            processes.close()
            raise

    @classmethod
    def connect(cls, addresses: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> Cluster:
        """Uses workers that run already, started with `tfplace worker` on this or other machines.

        Args:
          addresses: "host:port" of each, in the order of their task numbers.
          timeout_s: seconds a step may take, where `session` is not told.

        Raises:
          ClusterError: an address is wrong, or a worker does not answer within `RETURN_S`.
        """
        addresses = worker_addresses(addresses)
        await_answers(addresses, RETURN_S)
        return cls(addresses, (), None, timeout_s)

    def __repr__(self) -> str:
        return f"Cluster({', '.join(self._addresses)})"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where each worker is, "host:port"."""
        return tuple(self._addresses)

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes of the workers started here, by task; empty if somebody else started them."""
        return tuple(worker.pid for worker in self._workers)

    @property
    def cores(self) -> tuple[int, ...]:
        """Cores the workers started here are pinned to, in order; empty if somebody else started them."""
        return tuple(sorted({core for worker in self._workers for core in worker.settings.cores}))

    # ---- sessions ------------------------------------------------------------------------------------------------

    def session(self, graph: Any, *, timeout_s: float | None = None) -> GuardedSession:
        """A session with variables of its own, after repairing what needs it.

        Nothing is moved (no soft placement), and nothing optimized after placing. It sees the devices that the graph's
        ops have at its first run.

        Args:
          graph: a `tf.Graph` whose ops are on `devices`.
          timeout_s: seconds a run may take; by default the cluster's.

        Raises:
          ClusterError: workers are lost and cannot be brought back.
        """
        self.repair()
        return self._open(graph, timeout_s or self._timeout_s)

    def _open(self, graph: Any, timeout_s: float) -> GuardedSession:
        guard = functools.partial(self._guarded, limit_s=timeout_s + GRACE_S)
        config = session_config(self._chief, self._addresses, timeout_s)
        session = GuardedSession(f"grpc://{self._chief}", graph, config, guard)
        self._sessions.append(session)
        return session

    def end_session(self, session: Any) -> None:
        """Closes a session, which frees its variables. Never hangs, whatever state the workers are in."""
        session.close(0.0 if self._ended() else CLOSE_WAIT_S)  # then it would wait for nothing
        if session in self._sessions:
            self._sessions.remove(session)

    def _guarded(self, call: Callable[[], Any], limit_s: float) -> Any:
        if self._ended():
            raise WorkerLostError("the worker has ended")  # calls that would find that out may hang
        try:
            return guarded(call, limit_s)
        except StillRunningError as error:
            for task in self.health():
                self._kill(task)  # and the call returns, if it waits for this one
            raise TimeoutError(f"no answer from the workers within {limit_s - GRACE_S:g} s") from error

    def _meet(self) -> tuple[str, ...]:
        """Has every worker receive something from every other; gives back their devices.

        Connections to a worker that was lost are tried again only once a second, and by each worker on its own.

        Raises:
          ClusterError: they do not find one another.
        """
        graph, meetings = _meetings(len(self._addresses))
        deadline = time.monotonic() + RETURN_S
        while True:
            session = self._open(graph, RETURN_S)
            try:
                session.run(meetings)
                return _worker_devices(session)  # asked before the session is made, it would block the interpreter
            except Exception as error:
                failure = _known(error)
                if failure is None:
                    raise
                if failure.kind is not FailureKind.WORKER_LOST or self._ended() or time.monotonic() > deadline:
                    raise ClusterError(
                        f"workers at {', '.join(self._addresses)} that do not form a cluster ({failure})",
                        "workers with the same TensorFlow that find one another at these addresses",
                        "Start them with `tfplace worker --host=HOST`, where HOST is its name for the others.",
                    ) from error
                time.sleep(_PAUSE_S)
            finally:
                self.end_session(session)

    # ---- failures ------------------------------------------------------------------------------------------------

    def failure_of(self, error: BaseException) -> Failure | None:
        """What an exception of a session means for the placement; None if it is not a placement's doing (a bug).

        Call it before `repair`, which restarts what this finds suspect.
        """
        failure = _known(error)
        if failure is None:
            return None
        if failure.kind is FailureKind.WORKER_LOST:
            return self._lost(failure)
        if failure.kind in (FailureKind.TIME_OUT, FailureKind.OUT_OF_MEMORY):
            # An op cannot be interrupted: it may compute, or wait for memory, long after the step was given up. And
            # memory once taken stays in pieces of the sizes it was taken in, which would hinder the next placement.
            self._suspects = set(range(len(self._addresses)))
        if failure.kind is not FailureKind.TIME_OUT:
            return failure
        silent = self.health()
        limited = any(worker.settings.memory_limit is not None for worker in self._workers)
        hint = " (perhaps out of memory: TensorFlow retries for 10 s or more)" if limited and not silent else ""
        return Failure(failure.kind, failure.message + hint, _device(silent[0]) if silent else failure.device)

    def _lost(self, failure: Failure) -> Failure:
        """Which worker was lost, and whether for want of memory."""
        ended = self._first_ended()
        if ended is None:
            if self._processes is None:  # it may be back already, though not all may have noticed
                self._suspects = set(range(len(self._addresses)))
            return failure
        worker, device = self._workers[ended], _device(ended)
        words = worker.processes.last_words().lower()
        if worker.settings.memory_limit is not None and any(sign in words for sign in _NO_MEMORY):
            return Failure(FailureKind.OUT_OF_MEMORY, "the worker ended because it got no more memory", device)
        return Failure(failure.kind, f"worker process {worker.pid} ended with exit status {worker.ended}", device)

    def _first_ended(self) -> int | None:
        """The news of a worker's end may come after the error it caused."""
        deadline = time.monotonic() + _END_S
        while self._workers and not self._ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        return next(iter(self._ended()), None)

    def _ended(self) -> list[int]:
        return [task for task, worker in enumerate(self._workers) if worker.ended is not None]

    def health(self) -> list[int]:
        """Task numbers of the workers that are dead or do not answer."""
        ended = self._ended()
        return [t for t, address in enumerate(self._addresses) if t in ended or not answers(address, ANSWER_S)]

    def repair(self) -> None:
        """Restarts workers that are dead, do not answer, or are suspected of being busy still.

        Those that somebody else started are waited for instead, for up to `RETURN_S`.

        Raises:
          ClusterError: a worker does not come back.
        """
        if not self._end.alive:
            raise ClusterError("a closed cluster", "an open cluster")
        if self._processes is None:
            if self._suspects or self.health():
                await_answers(self._addresses, RETURN_S)
                self._meet()
                self._suspects.clear()
            return
        for attempt in range(_ATTEMPTS):
            lost = sorted(self._suspects.union(self._ended())) or self.health()
            if not lost:
                return
            try:
                self._restart(lost)
                self._meet()
                return
            except ClusterError:
                self._suspects = set(range(len(self._addresses)))
                if attempt == _ATTEMPTS - 1:
                    raise

    def close(self) -> None:
        """Ends the sessions, and the workers if they were started here; calling it again does nothing."""
        self._end()

    def _restart(self, tasks: Sequence[int]) -> None:
        assert self._processes is not None  # it started them
        if not self._processes.alive:
            self._end.detach()
            self._processes.close()
            self._processes = WorkerProcesses()
            self._end = weakref.finalize(self, _end, self._sessions, self._processes)
        self._processes.last_words()  # no longer news
        for task in tasks:
            self._kill(task)
            self._workers[task] = self._workers[task].respawn(self._processes)
            self._addresses[task] = self._workers[task].address
            self._suspects.discard(task)
            self.restarts += 1

    def _kill(self, task: int) -> None:
        if self._workers:
            self._workers[task].kill()


def _end(sessions: list[GuardedSession], processes: WorkerProcesses | None) -> None:
    for session in sessions:
        session.close()
    sessions.clear()
    if processes is not None:
        processes.close()


def _known(error: BaseException) -> Failure | None:
    if isinstance(error, TimeoutError):
        return Failure(FailureKind.TIME_OUT, str(error))
    if isinstance(error, WorkerLostError):
        return Failure(FailureKind.WORKER_LOST, str(error))
    return failure_of(error) if isinstance(error, Exception) else None


def _meetings(workers: int) -> tuple[Any, list[Any]]:
    """A graph in which every worker receives something from every other, and what to fetch."""
    graph = tf.Graph()
    fetches = []
    with graph.as_default():
        for sender in range(workers):
            with tf.device(_device(sender)):
                something = tf.constant(0.0)
                fetches.append(something.op)
            for receiver in set(range(workers)) - {sender}:
                with tf.device(_device(receiver)):
                    fetches.append(tf.identity(something).op)
    return graph, fetches


def _worker_devices(session: GuardedSession) -> tuple[str, ...]:
    names = [tf.DeviceSpec.from_string(device.name) for device in session.list_devices()]
    found = [name for name in names if name.job == "worker" and name.device_type in ("CPU", "GPU")]
    found.sort(key=lambda name: (name.task, name.device_type, name.device_index))
    return tuple(name.to_string() for name in found)


def _device(task: int) -> str:
    return f"/job:worker/replica:0/task:{task}/device:CPU:0"


def _cores(workers: int, cores: Sequence[Sequence[int]] | None) -> list[tuple[int, ...]]:
    own = cores_apart()
    if workers < 1:
        raise ClusterError(f"workers={workers}", "at least 1")
    if cores is None:
        if workers > len(own):
            raise ClusterError(
                f"{workers} workers on {len(own)} cores",
                "a core for each worker",
                "To share cores, set cores=[[0], [1], [1]]; the measurement then includes their contention.",
            )
        return [(core,) for core in own[:workers]]
    if len(cores) != workers or not all(set(each) <= set(own) for each in cores):
        raise ClusterError(f"cores={cores}", f"cores among {own} for each of {workers} workers")
    return [tuple(each) for each in cores]
