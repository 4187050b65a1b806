"""Workers of a Dask cluster: Dask schedules tasks, tries those of lost workers again and brings results."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tfplace.core.engine import Result
from tfplace.engines.child_process import ChildEndedError
from tfplace.engines.cores import own_cores
from tfplace.engines.messages import opened, packed
from tfplace.engines.process_workers import WorkerLostError
from tfplace.errors import InputError, MissingExtraError, WorkersError

if TYPE_CHECKING:
    import distributed

LOOPBACK = "127.0.0.1"

_TRIES = 3
"""A task that ends its process so often is not the victim but the cause."""
_CONNECT_S = 10.0
_JOIN_S = 60.0
"""How long a search waits for workers, at its start and when all are gone."""
_LOOK_S = 2.0
_FOR_THE_CALLER = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""Ctrl-C reaches all processes of a terminal."""
_START = f"dask worker tcp://{LOOPBACK}:8786 --host {LOOPBACK} --dashboard-address {LOOPBACK}:0"


def require_dask() -> None:
    """Says so if Dask is not installed.

    Raises:
      MissingExtraError: it is not; says how to install it.
    """
    if find_spec("distributed") is None:
        raise MissingExtraError(
            "a Dask engine without Dask distributed", "dask and distributed", "pip install 'tfplace[dask]'"
        )


class DaskEngine:
    """An `Engine` on Dask distributed. Tasks run in processes beside the cluster's workers, one for each thread.

    A connection, or a cluster of this machine, is opened when workers start and closed with them. A client stays open.

    Args:
      cluster: a running `distributed.Client`, or the address of a scheduler; None starts a cluster on this machine,
        which listens on loopback only.
      security: `distributed.Security` for an address with TLS; by default what Dask's configuration says.
      count: workers that such a cluster has, by default one for each processor; of other clusters, how many threads
        have to be there before anything begins, by default 1.

    Raises:
      InputError: fewer than 1, or a client that is asynchronous.
      MissingExtraError: Dask is not installed.
    """

    def __init__(
        self,
        cluster: distributed.Client | str | None = None,
        *,
        security: distributed.Security | None = None,
        count: int | None = None,
    ) -> None:
        require_dask()
        if count is not None and count < 1:
            raise InputError(f"{count} workers", "at least 1")
        if getattr(cluster, "asynchronous", False):
            raise InputError("an asynchronous Client", "a Client that is not asynchronous, or the scheduler's address")
        self._cluster = cluster
        self._security = security
        self._count = count

    @property
    def count(self) -> int:
        """How many tasks run at a time at the moment. Asks the scheduler.

        Raises:
          WorkersError: there is none.
        """
        if self._cluster is None:
            return self._count or len(own_cores())
        with self._connected() as client:
            return max(1, _threads(client))

    def start(self, make: Callable[[], Any]) -> DaskWorkers:
        """See `Engine.start`.

        Raises:
          InputError: what is to be sent there cannot be sent.
          WorkersError: no scheduler or no workers, or workers with other versions.
        """
        message = packed(make)
        with contextlib.ExitStack() as opening:
            client = opening.enter_context(self._connected())
            self._wait_for_workers(client)
            workers = DaskWorkers(client, message)
            workers.afterwards(opening.pop_all())
        return workers

    @contextlib.contextmanager
    def _connected(self) -> Iterator[distributed.Client]:
        from distributed import Client, LocalCluster

        if isinstance(self._cluster, Client):
            yield self._cluster
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(_quiet())
            cluster: Any = self._cluster
            if cluster is None:
                cluster = stack.enter_context(
                    LocalCluster(
                        n_workers=self.count,
                        threads_per_worker=1,
                        processes=True,
                        host=LOOPBACK,
                        dashboard_address=f"{LOOPBACK}:0",
                        worker_dashboard_address=f"{LOOPBACK}:0",
                        silence_logs=logging.CRITICAL,
                        preload=[_FOR_THE_CALLER],
                    )
                )
            try:
                client = Client(cluster, security=self._security, timeout=_CONNECT_S, set_as_default=False)
            except (OSError, ValueError, TypeError) as error:
                raise WorkersError(
                    f"no Dask scheduler at {cluster} ({error})",
                    "the address of a running scheduler",
                    f"Start one: dask scheduler --host {LOOPBACK} --dashboard-address {LOOPBACK}:8787",
                ) from error
            yield stack.enter_context(client)

    def _wait_for_workers(self, client: distributed.Client) -> None:
        """Waits until there are as many as are wanted.

        Raises:
          WorkersError: there are not for a minute.
        """
        wanted, until = self._count or 1, time.monotonic() + _JOIN_S
        while (there := _threads(client)) < wanted:
            if time.monotonic() > until:
                raise WorkersError(
                    f"{there} threads of Dask workers within {_JOIN_S:g} s",
                    f"at least {wanted}",
                    f"Start some: {_START}",
                )
            time.sleep(0.1)


class DaskWorkers:
    """`Workers` of a Dask cluster, made by `DaskEngine.start`.

    Args:
      client: of the cluster.
      make: packed; see `Engine.start`.

    Raises:
      WorkersError: a worker has other versions, or no tfplace.
    """

    def __init__(self, client: distributed.Client, make: bytes) -> None:
        from tfplace.engines.dask_plugin import SearchPlugin, refuse_other_versions, same_versions

        self._client = client
        self._name = f"tfplace-{uuid.uuid4().hex}"
        self._numbers = itertools.count()
        self._asked: dict[int, tuple[distributed.Future, Future[Any]]] = {}
        self._changes = threading.Lock()
        self._closed = threading.Event()
        self._lost: WorkersError | None = None
        self._after = contextlib.ExitStack()
        self._threads = 1
        needed = same_versions()
        try:
            client.run(refuse_other_versions, needed)
            client.register_plugin(SearchPlugin(make, needed), name=self._name)
        except WorkersError:
            raise
        except Exception as error:
            here = ", ".join(f"{package} {version}" for package, version in needed.items())
            raise WorkersError(
                f"a Dask worker that cannot run tfplace tasks ({type(error).__name__}: {error})",
                f"workers with {here}, as in this process",
                "pip install 'tfplace[dask]' on every worker and on the scheduler.",
            ) from error
        self._look()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def count(self) -> int:
        """How many tasks run at a time; at least 1, for which tasks wait if no worker is there."""
        return self._threads

    def submit(self, task: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """See `Workers.submit`.

        Raises:
          InputError: the task cannot be sent to another process.
          WorkersError: the workers are closed, or lost.
        """
        import dask

        from tfplace.engines.dask_plugin import ask

        future: Future[Result] = Future()
        message = packed((task, arguments))
        with self._changes:
            if self._closed.is_set():
                raise WorkersError("a task for workers that are closed", "open workers")
            if self._lost is not None:
                raise self._lost
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                # Keys of one group: so the scheduler keeps tasks until a worker is free, also one that joins.
                number = next(self._numbers)
                key = (self._name, number)
                asked = self._client.submit(ask, self._name, message, key=key, pure=False, retries=_TRIES - 1)
            self._asked[number] = asked, future
        asked.add_done_callback(functools.partial(self._answer, number))
        return future

    def close(self) -> None:
        """See `Workers.close`."""
        with self._changes:
            if self._closed.is_set():
                return
            self._closed.set()
            asked, self._asked = self._asked, {}
        with contextlib.suppress(Exception):  # of a scheduler that is lost
            self._client.cancel([task for task, _ in asked.values()], force=True)
        self._forget()
        for _, future in asked.values():
            if future.cancel():
                future.set_running_or_notify_cancel()  # wakes who waits for it
        self._after.close()

    def afterwards(self, stack: contextlib.ExitStack) -> None:
        """Closes that, too, when the workers are closed."""
        self._after = stack

    def _forget(self) -> None:
        """Ends what the workers have for this; a scheduler that is lost has nothing."""
        if self._client.status == "running":
            with contextlib.suppress(Exception):
                self._client.unregister_worker_plugin(self._name)

    def _answer(self, number: int, asked: distributed.Future) -> None:
        """Passes on what became of a task, in a thread of the client."""
        with self._changes:
            _, future = self._asked.pop(number, (None, None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        try:
            answer = asked.result()
        except BaseException as error:
            future.set_exception(self._told(error))
            return
        try:
            future.set_result(opened(answer))
        except BaseException as error:
            future.set_exception(error)

    def _told(self, error: BaseException) -> BaseException:
        """Why Dask did not do a task."""
        from distributed import KilledWorker

        if isinstance(error, ChildEndedError):
            times = f"{_TRIES} times in one task, the last time"
            return WorkerLostError(f"a worker that ended {times} {error}", "a worker that finishes the task")
        if isinstance(error, KilledWorker):
            return WorkerLostError(f"a task during which Dask workers ended ({error})", "workers that finish it")
        if isinstance(error, WorkersError):
            return error
        if isinstance(error, CancelledError):
            self._lost = WorkersError(
                "a Dask scheduler that is lost or has canceled the task", "a running scheduler", "See its log."
            )
            return self._lost
        return WorkersError(
            f"a Dask worker that failed ({type(error).__name__}: {error})", "a worker that finishes its tasks"
        )

    def _watch(self) -> None:
        """Gives everything up if there has been no worker for long: Dask would wait for ever."""
        since = time.monotonic()
        while not self._closed.wait(_LOOK_S):
            with contextlib.suppress(Exception):  # of a scheduler that is lost, of which each task tells
                if self._look():
                    since = time.monotonic()
            if time.monotonic() - since > _JOIN_S:
                self._give_up()
                return

    def _look(self) -> int:
        """How many threads the cluster's workers have."""
        threads = _threads(self._client)
        self._threads = max(1, threads)
        return threads

    def _give_up(self) -> None:
        lost = WorkersError(f"no Dask worker for {_JOIN_S:g} s", "at least one", f"Start some: {_START}")
        with self._changes:
            self._lost = lost
            asked, self._asked = self._asked, {}
        for _, future in asked.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(lost)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Has a connection of our own log nothing: what matters of it is an error of ours."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _threads(client: distributed.Client) -> int:
    """How many the cluster's workers have."""
    return sum(map(int, client.nthreads().values()))
