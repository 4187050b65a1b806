"""Device names: those of a placement, and those of this machine's TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import tensorflow as tf

from tfplace.errors import ApplyError


@cache
def canonical(device: str) -> str:
    """The full name of a device: "GPU:0" is "/job:localhost/replica:0/task:0/device:GPU:0"."""
    text = device if device.startswith("/") else f"/device:{device}"
    spec = tf.DeviceSpec.from_string(text)
    local = tf.DeviceSpec(job="localhost", replica=0, task=0, device_index=0)
    name: str = local.make_merged_spec(spec).to_string()
    return name


def short(device: str) -> str:
    """What people call a device: "GPU:0", with its job and task if it is not on this machine."""
    spec = tf.DeviceSpec.from_string(canonical(device))
    name = f"{spec.device_type}:{spec.device_index}"
    return name if spec.job == "localhost" else f"/job:{spec.job}/task:{spec.task}/{name}"


def available_devices() -> tuple[str, ...]:
    """Full names of the devices the running TensorFlow has."""
    return tuple(canonical(device.name) for device in tf.config.list_logical_devices())


def map_devices(names: Iterable[str], devices: Mapping[str, str] | None = None) -> dict[str, str]:
    """Placement device -> full TensorFlow device name.

    Args:
      names: devices a placement uses.
      devices: placement device -> TensorFlow device on this machine; others keep their name.

    Raises:
      ApplyError: a device this machine does not have; lists those it has.
    """
    have = available_devices()
    out: dict[str, str] = {}
    for name in names:
        target = (devices or {}).get(name, name)
        if not _parses(target) or canonical(target) not in have:
            renamed = f" (for {name})" if target != name else ""
            raise ApplyError(
                f"device {target!r}{renamed}",
                f"a device of this machine: {', '.join(short(d) for d in have)}",
                f'Map it with devices={{"{name}": "{short(have[0])}"}}, or place on Topology.detect(). Logical devices '
                "are made with tf.config.set_logical_device_configuration before TensorFlow starts.",
            )
        out[name] = canonical(target)
    return out


def _parses(device: str) -> bool:
    try:
        canonical(device)
    except ValueError:
        return False
    return True
