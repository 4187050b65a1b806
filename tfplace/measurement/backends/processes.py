"""Worker processes of this machine, started, watched and ended."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfplace.core.engine import LOOK_S
from tfplace.engines.child_process import ChildProcess
from tfplace.errors import ClusterError
from tfplace.measurement.backends.worker import Settings, serve_forks

LOAD_TIMEOUT_S = 120.0
"""Time to import TensorFlow: a few seconds, but more on a cold disk or a busy machine."""

SERVE_TIMEOUT_S = 30.0
"""Time for a forked worker to serve: about 0.1 s, seconds with a GPU."""

_END_TIMEOUT_S = 10.0

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class WorkerProcesses:
    """A process with TensorFlow loaded, and the workers it has forked.

    A worker then starts in a tenth of a second instead of the seconds TensorFlow takes to load, as often as needed.
    All of them end with `close`, with this process however it ends, and before that each when it is killed.

    Raises:
      ClusterError: the operating system is not Linux, or TensorFlow does not load.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise ClusterError(
                f"workers to start on {sys.platform}", "Linux", "Start them elsewhere with `tfplace worker`."
            )
        self._changed = threading.Condition()
        self._facts: dict[tuple[str, int], Any] = {}
        self._requests = 0
        self._gone = False
        self._refusal = ""
        self._child: ChildProcess | None = None
        # Of its own, and to the end: the kernel ends the process when the *thread* that started it ends.
        self._thread = threading.Thread(target=self._run, name="tfplace workers", daemon=True)
        self._thread.start()
        try:
            self._wait(lambda: ("ready", 0) in self._facts, LOAD_TIMEOUT_S, "a process that loads TensorFlow")
        except BaseException:
            self.close()
            raise
        self.last_words()  # TensorFlow's greetings

    @property
    def alive(self) -> bool:
        """Whether workers can be launched."""
        return not self._gone

    def launch(self, settings: Sequence[Settings]) -> list[Worker]:
        """Starts workers, all at once.

        Raises:
          ClusterError: one does not start; says why. The others are ended.
        """
        requests = [self._request(s) for s in settings]
        try:
            return [self._started(number, s) for number, s in zip(requests, settings, strict=True)]
        except ClusterError:
            for number in requests:
                if pid := self._facts.get(("forked", number)):
                    self.kill(pid)
            raise

    def kill(self, pid: int) -> None:
        """Kills a worker and waits for its end. One that has ended is left alone."""
        if self.ended(pid) is not None:
            return
        self._send({"kill": pid})
        self._wait(lambda: self.ended(pid) is not None, _END_TIMEOUT_S, f"killed worker process {pid}")

    def ended(self, pid: int) -> int | None:
        """How a worker ended: its exit code, or minus the signal that killed it. None while it runs."""
        status: int | None = self._facts.get(("ended", pid))
        return -9 if status is None and self._gone else status

    def wait(self, pid: int, timeout_s: float | None = None) -> int | None:
        """As `ended`, once it has ended or the time is over."""
        look_s = LOOK_S if timeout_s is None else timeout_s
        with self._changed:
            while not self._changed.wait_for(lambda: self.ended(pid) is not None, look_s) and timeout_s is None:
                pass
        return self.ended(pid)

    @property
    def pid(self) -> int | None:
        """Of the process that forks workers; None before it was started."""
        return None if self._child is None else self._child.pid

    def last_words(self) -> str:
        """What the processes have written to stderr, at most its last 4,000 bytes, since this was last called."""
        return self._refusal if self._child is None else self._child.read_log()

    def close(self) -> None:
        """Ends all processes and waits for that; calling it again does nothing."""
        if self._child is None:
            return
        self._child.hang_up()
        self._thread.join(_END_TIMEOUT_S)
        self._child.kill()
        self._thread.join(_END_TIMEOUT_S)

    # ---- the other process ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        """The thread's life: starts the process, then notes what it says until it ends."""
        try:
            self._child = ChildProcess(serve_forks, {"TF_CPP_MIN_LOG_LEVEL": "2"} | dict(os.environ) | _ONE_THREAD)
        except OSError as error:
            self._end(str(error))
            return
        try:
            while True:
                self._note(json.loads(self._child.receive()))
        except (EOFError, OSError):
            self._child.close(_END_TIMEOUT_S)
        finally:
            self._end()

    def _end(self, refusal: str = "") -> None:
        with self._changed:
            self._refusal, self._gone = refusal, True
            self._changed.notify_all()

    def _note(self, event: dict[str, Any]) -> None:
        with self._changed:
            if "ready" in event:
                self._facts["ready", 0] = True
            elif "forked" in event:
                self._facts["forked", event["request"]] = event["forked"]
            elif "ended" in event:
                self._facts["ended", event["ended"]] = event["status"]
            else:
                kind = "serving" if "serving" in event else "refused"
                self._facts[kind, event["request"]] = event[kind]
            self._changed.notify_all()

    def _request(self, settings: Settings) -> int:
        self._requests += 1
        self._send({"request": self._requests, "settings": settings.to_json()})
        return self._requests

    def _send(self, request: dict[str, Any]) -> None:
        try:
            assert self._child is not None  # started, since ready
            self._child.send(json.dumps(request).encode())
        except (OSError, ValueError) as error:
            self._thread.join(_END_TIMEOUT_S)  # so that it is known to have ended when this is
            raise self._error("a process that starts workers, which has ended") from error

    def _started(self, number: int, settings: Settings) -> Worker:
        def settled() -> bool:
            pid = self._facts.get(("forked", number))  # it may have said that it serves before this is known
            said = any((kind, number) in self._facts for kind in ("serving", "refused"))
            return pid is not None and (said or ("ended", pid) in self._facts)

        self._wait(settled, SERVE_TIMEOUT_S, "a starting worker")
        address = self._facts.get(("serving", number))
        if address is None:
            raise self._error(self._facts.get(("refused", number), "a worker that ended at once"))
        return Worker(self._facts["forked", number], address, settings, self)

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Until the condition is met; an error if that takes too long, or cannot happen any more."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._gone, deadline - time.monotonic())
            if condition():
                return
        raise self._error(f"{what}, which has ended" if self._gone else f"{what}, which took over {timeout_s:g} s")

    def _error(self, what: str) -> ClusterError:
        return ClusterError(what, "a worker that runs", self.last_words().strip())


@dataclass(frozen=True)
class Worker:
    """A worker process that serves.

    Attributes:
      pid: its process.
      address: "host:port".
      settings: what it was started with.
      processes: where it was started.
    """

    pid: int
    address: str
    settings: Settings
    processes: WorkerProcesses = field(repr=False)

    @property
    def ended(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it runs."""
        return self.processes.ended(self.pid)

    def kill(self) -> None:
        """Kills it and waits for its end."""
        self.processes.kill(self.pid)

    def respawn(self, processes: WorkerProcesses) -> Worker:
        """Another in its place, at its address if that is still free: what waits for this one is then answered."""
        port = int(self.address.rpartition(":")[2])
        try:
            started = processes.launch([replace(self.settings, port=port)])[0]
        except ClusterError:
            started = processes.launch([self.settings])[0]
        return replace(started, settings=self.settings)
