"""What a search has on the workers of a Dask cluster; `tfplace.engines.dask_workers` is the other end.

Dask calls it a plugin: an object that the scheduler sends once to each worker, also to those that join later.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

from distributed import Reschedule, Worker, WorkerPlugin, get_worker

from tfplace.engines.cores import own_cores, shares
from tfplace.engines.worker_process import Process
from tfplace.errors import WorkersError
from tfplace.version import versions

SAME = ("tfplace", "python", "tensorflow", "numpy")
"""Whose versions workers have to share with whoever sends them tasks; of Python the first two numbers."""

_IDLE_S = 600.0
"""A program that was killed says no goodbye; so long after its last task its processes end."""
_LEAVE_S = 0.2


def ask(name: str, task: bytes) -> bytes:
    """In a thread of a Dask worker: the answer to a packed task, by a process of the plugin of that name.

    Raises:
      ChildEndedError: the process ended in the middle of it.
      Reschedule: another worker should do it.
    """
    worker = get_worker()
    plugin: SearchPlugin = worker.plugins[name]
    if plugin.pool is None:  # the worker has other versions and is about to leave
        time.sleep(_LEAVE_S)
        raise Reschedule
    return plugin.pool.ask(worker.get_current_task(), task)


class SearchPlugin(WorkerPlugin):
    """Has a pool of processes on each worker, as many as that has threads.

    Tasks run in these instead of in Dask's threads: a process can be ended in the middle of a task, leaves the worker's
    memory and environment alone, and computes with one thread wherever it runs.

    Args:
      make: the packed function that makes what is a process's own.
      needed: versions of the sender.
    """

    def __init__(self, make: bytes, needed: Mapping[str, str]) -> None:
        self._make = make
        self._needed = dict(needed)
        self.pool: Pool | None = None

    def setup(self, worker: Worker) -> None:
        """Makes ready for tasks. A worker that joins with other versions leaves again, and its log has both.

        Raises:
          WorkersError: it does.
        """
        try:
            refuse_other_versions(self._needed, worker)
        except WorkersError:
            worker.loop.call_later(_LEAVE_S, worker.close, reason="other versions than those of a search")
            raise
        self.pool = Pool(self._make, worker.state.nthreads)

    def teardown(self, worker: Worker) -> None:
        """Ends all processes, in the middle of tasks too."""
        if self.pool is not None:
            self.pool.close()

    def transition(self, key: Any, start: str, finish: str, **more: Any) -> None:
        """Ends the process of a task that nobody waits for any more, since its client canceled it or is gone."""
        if finish == "released" and self.pool is not None:
            self.pool.interrupt(key)


class Pool:
    """Processes that each make a thing of their own. They start with the first tasks.

    Args:
      make: see `SearchPlugin`.
      count: how many, with a part of the processors each.
    """

    def __init__(self, make: bytes, count: int) -> None:
        self._processes = [Process(make, cores) for cores in shares(own_cores(), count)]
        self._free: queue.LifoQueue[Process] = queue.LifoQueue()  # so that few tasks start few processes
        self._running: dict[Any, Process] = {}
        self._idle = threading.Timer(_IDLE_S, self._end)
        for process in self._processes:
            self._free.put(process)

    def ask(self, key: Any, task: bytes) -> bytes:
        """The answer to a packed task, by the first process that is free.

        Raises:
          ChildEndedError: the process ended in the middle of it.
        """
        process = self._free.get()
        self._running[key] = process
        self._idle.cancel()
        try:
            return process.ask(task)
        finally:
            del self._running[key]
            self._free.put(process)
            self._idle = threading.Timer(_IDLE_S, self._end)
            self._idle.daemon = True
            self._idle.start()

    def interrupt(self, key: Any) -> None:
        """Ends the process that does a task, if one does."""
        process = self._running.get(key)
        if process is not None:
            process.interrupt()

    def close(self) -> None:
        """Ends all processes for ever."""
        self._idle.cancel()
        for process in self._processes:
            process.kill()
        self._end()

    def _end(self) -> None:
        """Ends those that are free; the next task starts one again."""
        ended = []
        while not self._free.empty():
            ended.append(self._free.get())
            ended[-1].end()
        for process in ended:
            self._free.put(process)


def refuse_other_versions(needed: Mapping[str, str], dask_worker: Worker) -> None:
    """Refuses a worker on which tasks may mean something else.

    Args:
      needed: `same_versions()` of the sender.
      dask_worker: which one.

    Raises:
      WorkersError: another version of something; names both.
    """
    for package, version in same_versions().items():
        if version != needed[package]:
            raise WorkersError(
                f"the Dask worker {dask_worker.address} with {package} {version}",
                f"{package} {needed[package]}, as in the process that started the search",
                f"Install that there, or start the search with {package} {version}.",
            )


def same_versions() -> dict[str, str]:
    """Those that have to be the same everywhere."""
    found = versions()
    found["python"] = ".".join(found["python"].split(".")[:2])
    return {package: found.get(package, "none") for package in SAME}
