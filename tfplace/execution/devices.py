"""Device names: those of a placement, and those of this machine's TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import tensorflow as tf

from tfplace.errors import ApplyError

WORKER = "worker"
"""The job of workers: their devices are called /job:worker/task:0/device:CPU:0 and so on."""


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


def is_here(device: str) -> bool:
    """Whether a device, by its full name, is one of this process."""
    return bool(tf.DeviceSpec.from_string(device).job in (None, "localhost"))


def available_devices() -> tuple[str, ...]:
    """Full names of the devices of this process's TensorFlow."""
    return tuple(name for name in _all_devices() if is_here(name))


def worker_devices() -> tuple[str, ...]:
    """Full names of the CPUs and GPUs of the workers it is connected to, by task; see `tfplace.execution.hosts`."""
    specs = [tf.DeviceSpec.from_string(name) for name in _all_devices() if not is_here(name)]
    usable = [spec for spec in specs if spec.device_type in ("CPU", "GPU")]
    usable.sort(key=lambda spec: (spec.task, spec.device_type, spec.device_index))
    return tuple(spec.to_string() for spec in usable)


def _all_devices() -> list[str]:
    return [canonical(device.name) for device in tf.config.list_logical_devices()]


def map_devices(names: Iterable[str], devices: Mapping[str, str] | None = None) -> dict[str, str]:
    """Placement device -> full TensorFlow device name.

    Args:
      names: devices a placement uses.
      devices: placement device -> TensorFlow device on this machine; others keep their name.

    Raises:
      ApplyError: a device this machine does not have; lists those it has.
    """
    have = (*available_devices(), *worker_devices())
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


def match_devices(
    names: Sequence[str], types: Sequence[str], have: Sequence[str], given: Mapping[str, str] | None = None
) -> list[str]:
    """[D] which of the devices there are stands for each of a topology's.

    Args:
      names: [D] the topology's devices.
      types: [D] theirs, such as "GPU".
      have: full names of the devices there are.
      given: topology's name -> device's; by default the devices of the same names if all are there, else in order.

    Raises:
      ApplyError: there are too few, of another type, or a name is unknown.
    """
    wanted = [(given or {}).get(name, name) for name in names]
    full = [canonical(name) if _parses(name) else name for name in wanted]  # "worker 0" is no name of TensorFlow's
    if set(full) <= set(have):
        return full
    found = list(have[: len(wanted)])
    if given or [tf.DeviceSpec.from_string(name).device_type for name in found] != list(types):
        raise ApplyError(
            f"devices {', '.join(wanted)}",
            f"devices among {', '.join(have)}",
            "Map them with devices={topology's name: one of these}, or place on a topology of these devices.",
        )
    return found


def _parses(device: str) -> bool:
    try:
        canonical(device)
    except ValueError:
        return False
    return True
