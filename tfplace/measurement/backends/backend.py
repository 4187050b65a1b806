"""Backend: where measured steps run. This process, or a cluster of workers, alike to whoever measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf

from tfplace.core.stepcost import Failure
from tfplace.core.topology import Topology
from tfplace.errors import ApplyError
from tfplace.execution.devices import canonical


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


def backend_devices(topology: Topology, have: tuple[str, ...], given: Mapping[str, str] | None = None) -> list[str]:
    """[D] the backend's device for each of the topology's.

    Args:
      topology: the devices to be found.
      have: full names of the backend's devices.
      given: topology's name -> backend's; by default the devices of the same names if all are there, else in order.

    Raises:
      ApplyError: there are too few, of another type, or a name is unknown.
    """
    names = [(given or {}).get(name, name) for name in topology.device_names]
    full = [_full(name) for name in names]
    if set(full) <= set(have):
        return full
    found = list(have[: len(names)])
    types = [tf.DeviceSpec.from_string(name).device_type for name in found]
    if given or types != [device.type for device in topology.devices]:
        raise ApplyError(
            f"devices {', '.join(names)}",
            f"devices among {', '.join(have)}",
            "Map them with devices={topology's name: backend's name}, or place on a topology of these devices.",
        )
    return found


def _full(name: str) -> str:
    try:
        return canonical(name)
    except ValueError:  # a name that is no device of TensorFlow's, such as "worker 0"
        return name
