"""What runs in worker processes: a TensorFlow server with its cores, threads and memory limit.

Importing TensorFlow takes seconds, so it is done once, in a process that then forks workers as they are asked for
(`serve_forks`). That is sound because this process has a single thread: numpy's is told to start none, and TensorFlow
starts its own with the first server, in the worker.

Requests come and events go as JSON; `tfplace.measurement.backends.processes` is the other end. Nothing here outlives
its parent: a closed pipe ends the process that forks, and the kernel ends each process whose parent has died, however
that died.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfplace.engines.child_process import MessagePipe, end_with_parent
from tfplace.engines.sockets import hear_loopback_only, is_loopback

BOOT_JOB = "tfplace"
"""The job a server starts under. A session gives it another name and task; TensorFlow refuses to give the same."""

_SESSION_THREADS = 16  # a session starts about five
_STACK_BYTES = 8 * 2**20
_SETTLE_S = 0.1
_LONGEST = 1000  # an event is written at once: less than a pipe takes in one piece


@dataclass(frozen=True)
class Settings:
    """How a worker runs.

    Attributes:
      host: the name others reach it by; a loopback address makes it deaf to anything else.
      port: where it listens; 0 takes a free port.
      cores: CPU cores it is pinned to; none leaves it free.
      memory_limit: bytes it may allocate once it has started; None for no limit.
      inter_op: threads that run ops side by side. With 1, an op that computes keeps the worker from answering others.
      intra_op: threads within an op.
      gpus: value of CUDA_VISIBLE_DEVICES; empty for none.
      cpus: logical CPU devices, which share the worker's cores and threads.
    """

    host: str = "127.0.0.1"
    port: int = 0
    cores: tuple[int, ...] = ()
    memory_limit: int | None = None
    inter_op: int = 4
    intra_op: int = 1
    gpus: str = ""
    cpus: int = 1

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Settings:
        """What `to_json` gave."""
        return cls(**{**values, "cores": tuple(values["cores"])})


def serve(settings: Settings) -> tuple[Any, str]:
    """Starts a server in this process.

    Returns:
      The server, to be kept, and its address, "host:port".
    """
    if settings.cores:
        if not set(settings.cores) <= os.sched_getaffinity(0):
            raise ValueError(f"cores {settings.cores} are not among {sorted(os.sched_getaffinity(0))}")
        os.sched_setaffinity(0, settings.cores)
    os.environ["CUDA_VISIBLE_DEVICES"] = settings.gpus
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=settings.inter_op, intra_op_parallelism_threads=settings.intra_op
    )
    config.device_count["CPU"] = settings.cpus
    if not settings.gpus:
        config.device_count["GPU"] = 0
    cluster = {BOOT_JOB: [f"{settings.host}:{settings.port}"]}
    server = tf.distribute.Server(cluster, job_name=BOOT_JOB, task_index=0, config=config, start=False)
    port = int(server.target.rpartition(":")[2])
    if is_loopback(settings.host):
        hear_loopback_only(port)
    server.start()
    if settings.memory_limit is not None:
        _limit_memory(settings.memory_limit)
    return server, f"{settings.host}:{port}"


def _limit_memory(limit: int) -> None:
    """Refuses more than `limit` bytes of data beyond what the process has once the server's threads have started.

    A thread's stack counts from its start, though little of it is ever used: those of sessions' are allowed for.
    """
    import resource

    threads = -1
    while threads != (threads := len(os.listdir("/proc/self/task"))):  # noqa: PTH208  # only counted
        time.sleep(_SETTLE_S)
    now = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    stacks = _SESSION_THREADS * (stack if stack != resource.RLIM_INFINITY else _STACK_BYTES)
    most = int(now.split()[1]) * 1024 + stacks + limit
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def serve_forks(pipe: MessagePipe) -> None:
    """Forks workers on request until the pipe is closed."""
    import tensorflow  # noqa: F401  # what makes a fork of this process worth having

    workers: set[int] = set()

    def report(*_: Any) -> None:
        for pid in tuple(workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                workers.discard(pid)
                _tell(pipe, ended=pid, status=os.waitstatus_to_exitcode(status))

    signal.signal(signal.SIGCHLD, report)
    _tell(pipe, ready=os.getpid())
    with contextlib.suppress(EOFError):
        while True:
            request = json.loads(pipe.receive())
            with _held_back(signal.SIGCHLD):
                if "kill" in request:
                    _kill(workers & {request["kill"]})
                else:
                    workers.add(_fork(pipe, request))
    with _held_back(signal.SIGCHLD):
        _kill(workers)
        for pid in workers:
            os.waitpid(pid, 0)
        os._exit(0)  # there is nothing here that wants to be taken apart with care


@contextlib.contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    """Delays a signal: a worker that dies at once is in the books before its end is, and no process is killed twice."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _kill(pids: set[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _fork(pipe: MessagePipe, request: Mapping[str, Any]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        try:
            _work(pipe, request, parent)
        finally:
            os._exit(1)
    _tell(pipe, forked=pid, request=request["request"])
    return pid


def _work(pipe: MessagePipe, request: Mapping[str, Any], parent: int) -> None:
    """A worker's life, in the process just forked."""
    end_with_parent(parent)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    try:
        server, address = serve(Settings.from_json(request["settings"]))
    except Exception as error:
        _tell(pipe, request=request["request"], refused=f"{type(error).__name__}: {str(error)[:_LONGEST]}")
        raise
    _tell(pipe, request=request["request"], serving=address)
    server.join()


def _tell(pipe: MessagePipe, **event: Any) -> None:
    pipe.send(json.dumps(event).encode())
