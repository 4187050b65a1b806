"""Workers, perhaps on other hosts, on whose devices this process's TensorFlow runs ops.

TensorFlow's eager runtime carries it: once it is told of the workers, functions and variables can be on their devices.
What is on this process's own devices stays as it is. docs/how_to/more_than_one_machine.md tells how to use it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfplace.engines.sockets import (
    ANSWER_S,
    RETURN_S,
    answers,
    await_answers,
    cut_off,
    hear_loopback_only,
    is_loopback,
    own_address,
    split_address,
    worker_addresses,
)
from tfplace.errors import ApplyError, ClusterError, LostWorkerError
from tfplace.execution.devices import WORKER, available_devices, match_devices, worker_devices
from tfplace.execution.renewal import renewed
from tfplace.execution.variables import abandon_workers, variables_away
from tfplace.extraction import tf_internals

LOST_S = 10.0
"""Time that a worker may not answer; then it is lost."""

KEEP_ALIVE_S = 60
"""Time after which workers free what they hold for a process that is gone."""

_LOOK_S, _PAUSE_S = 1.0, 0.2
_LOOPBACK = "127.0.0.1"
_TARGET = re.compile(rf"remote target /job:{WORKER}/replica:0/task:(\d+)")
_NO_CONTEXT = "Unable to find a context_id"
"""What a worker says that was restarted and knows nothing of what was on it."""


class Hosts:
    """Workers whose devices are among those of this process's TensorFlow while somebody uses them.

    Attributes:
      addresses: "host:port" of each, by task number.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()
        self._given_up: set[str] = set()
        threading.Thread(target=self._watch, name="tfplace hosts", daemon=True).start()

    def devices_for(self, names: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, str]:
        """Device of a topology -> device of a worker, or of this process where the user says so.

        Args:
          names: the topology's.
          given: see `tfplace.apply`; by default the workers' devices of the same names, else all of them in order.

        Raises:
          ApplyError: the workers have others.
        """
        types = [name.rpartition("/")[2].removeprefix("device:").partition(":")[0] for name in names]
        have = (*worker_devices(), *available_devices()) if given else worker_devices()
        try:
            return dict(zip(names, match_devices(names, types, have, given), strict=True))
        except ApplyError:
            self.drop_unused()
            raise

    def join(self, user: Any) -> None:
        """Somebody uses the workers, until `leave`.

        Raises:
          ClusterError: one does not answer.
        """
        if not worker_devices():
            connect_hosts(self.addresses)
        self._users.add(user)

    def leave(self, user: Any) -> None:
        """Somebody uses the workers no longer. Nobody waits for them from then on, also if they end."""
        self._users.discard(user)
        self.drop_unused()

    def drop_unused(self) -> None:
        """Forgets the workers if nobody uses them."""
        if not self._users and not variables_away():
            _runtime.drop()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """What waits for workers: tells if one of them was lost.

        All are given up then, and variables get the values back that they had before they were on workers.

        Raises:
          LostWorkerError: one is lost.
        """
        try:
            yield
        except tf.errors.OpError as error:
            lost = self._lost(error)
            if not lost:
                raise
            abandon_workers()
            self._users.clear()
            _runtime.drop()
            raise LostWorkerError(lost) from error

    def check(self) -> None:
        """Raises if a worker that is used is lost.

        Raises:
          LostWorkerError: one is.
        """
        with self.watched():
            for device in worker_devices():
                with tf.device(device):
                    tf.zeros(()).numpy()

    def met(self) -> None:
        """They were all there just now."""
        self._given_up.clear()

    def _lost(self, error: tf.errors.OpError) -> list[str]:
        """Which workers an error is the end of; none if it is another error."""
        said = str(error.message)
        ended = isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError) or _NO_CONTEXT in said
        if not ended and not (self._given_up and isinstance(error, tf.errors.CancelledError)):
            return []
        # A worker that waits for another tells of that one first.
        named = [self.addresses[int(task)] for task in _TARGET.findall(said)][:1]
        return sorted(self._given_up) or named or self._silent() or list(self.addresses)

    def _silent(self) -> list[str]:
        return [address for address in self.addresses if not answers(address, ANSWER_S)]

    def _watch(self) -> None:
        """A thread's life: gives up a worker in use that does not answer for `LOST_S`, so that nobody waits for it."""
        heard: dict[str, float] = {}
        while True:
            time.sleep(_LOOK_S)
            now = time.monotonic()
            for address in self.addresses:
                if not self._users or answers(address, _LOOK_S):
                    heard[address] = now
                elif now - heard.setdefault(address, now) > LOST_S:
                    self._given_up.add(address)
                    cut_off(address)


def connect_hosts(addresses: Sequence[str]) -> Hosts:
    """Gives this process's TensorFlow the devices of workers, in place of those of other workers before.

    What is on workers that are there already stays.

    Args:
      addresses: "host:port" of each, in the order of their task numbers.

    Raises:
      ClusterError: a worker does not answer, variables are on other workers, or this process is in another cluster.
    """
    return _runtime.connect(tuple(addresses))


def listen_for(cluster: str | Sequence[str]) -> None:
    """Has this process listen for workers, which need not run yet; `connect_hosts` does it where that was not done.

    TensorFlow loses lookup tables and queues by it, so it is done before these are made.

    Args:
      cluster: "host:port,host:port", or a sequence.

    Raises:
      ClusterError: an address is wrong, or something is there that would be lost.
    """
    _runtime.own_address(worker_addresses(cluster))


class _Runtime:
    """What TensorFlow's eager runtime in this process is connected to."""

    def __init__(self) -> None:
        self._hosts: Hosts | None = None
        self._own: tuple[str, int] | None = None  # host and port of this process's server

    def connect(self, addresses: tuple[str, ...]) -> Hosts:
        if self._hosts is None or self._hosts.addresses != addresses:
            self._check_free(addresses)
        await_answers(addresses, RETURN_S)
        self._meet(addresses)
        if self._hosts is None or self._hosts.addresses != addresses:
            self._hosts = Hosts(addresses)
        self._hosts.met()
        return self._hosts

    def drop(self) -> None:
        """Forgets the workers: TensorFlow would go on to wait for them in what has nothing to do with them."""
        if self._own is not None and worker_devices():
            tf_internals.set_cluster("{}:{}".format(*self._own), (), KEEP_ALIVE_S)

    def _check_free(self, addresses: Sequence[str]) -> None:
        """Refuses workers in place of others that are in use."""
        if self._hosts is not None and variables_away():
            raise ClusterError(
                f"workers at {', '.join(addresses)} while variables are on those at {', '.join(self._hosts.addresses)}",
                "one cluster at a time",
                "Bring the variables back with .restore() first.",
            )

    def _meet(self, addresses: Sequence[str]) -> None:
        own, deadline = self.own_address(addresses), time.monotonic() + RETURN_S
        while True:
            try:
                tf_internals.set_cluster(own, addresses, KEEP_ALIVE_S)
            except tf.errors.OpError as error:
                said = str(error.message).partition("\n")[0]
                # A connection to a worker that was lost is tried again after a while only.
                if not isinstance(error, tf.errors.UnavailableError) or time.monotonic() > deadline:
                    raise ClusterError(
                        f"workers at {', '.join(addresses)} that do not form a cluster ({said})",
                        "workers with the same TensorFlow that find one another at these addresses",
                        "Start them with `tfplace worker --host=HOST`, where HOST is its name for the others.",
                    ) from error
                time.sleep(_PAUSE_S)
            else:
                return

    def own_address(self, addresses: Sequence[str]) -> str:
        """Where workers find this process's server, which is started if there is none yet."""
        far = [host for host in (split_address(address)[0] for address in addresses) if not is_loopback(host)]
        host = own_address(far[0]) if far else _LOOPBACK
        if self._own is None and tf_internals.is_in_cluster():
            raise ClusterError(
                f"workers at {', '.join(addresses)} for a process that is already in a TensorFlow cluster",
                "a process that has not called tf.config.experimental_connect_to_cluster",
                "Start a new process.",
            )
        if self._own is None or self._own[0] != host:
            with socket.create_server(("", 0)) as server:
                port = int(server.getsockname()[1])
            with renewed():
                tf_internals.start_own_server(f"{host}:{port}")
                if is_loopback(host):
                    hear_loopback_only(port)
            self._own = host, port
        return f"{self._own[0]}:{self._own[1]}"


_runtime = _Runtime()
