"""How fast a device computes and copies, what an op costs it, and what its process holds besides tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfplace.cost.analytic import EFFICIENCY
from tfplace.engines.sockets import split_address
from tfplace.errors import ApplyError
from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.calibration.bench import Build, products, time_steps, value
from tfplace.measurement.calibration.detect import driver_gpus
from tfplace.measurement.calibration.machine import read_machine

SIDE = 1024
COPY_BYTES = 64 * 2**20
_DTYPES = {"float32": tf.float32, "float64": tf.float64}
_FEW_OPS, _MANY_OPS = 1000, 10_000
_REPEATS = 10
_LONGER, _LENGTHS = 4, 6
"""A chain whose ops are less than half of its step is made this much longer, for so many lengths in all."""


@dataclass(frozen=True)
class Rates:
    """What was measured on one device.

    Attributes:
      matmul_flops: dtype name -> operations per second in products of two square matrices of side `SIDE`.
      copy_bandwidth: bytes read and written per second in the negation of `COPY_BYTES`.
      op_overhead_s: seconds of an op that adds two scalars, in a chain of them.
      workspace_bytes: memory of the process after those products, less their tensors; 0 where it cannot be asked.
    """

    matmul_flops: Mapping[str, float]
    copy_bandwidth: float
    op_overhead_s: float
    workspace_bytes: int

    @property
    def peak_flops(self) -> dict[str, float]:
        """Rates for `Device.flops`, of which the analytic costs take a fraction: theirs for MatMul is then measured."""
        return {dtype: rate / EFFICIENCY["matmul"] for dtype, rate in self.matmul_flops.items()}


def measure_rates(backend: Backend, device: str, process: int | None = None) -> Rates:
    """Measures one device; the others should be idle.

    Each rate comes from the difference between a short and a long chain of ops, each at its fastest, so that what a
    step takes by itself drops out, and most of what else the machine does. Long means that its step takes at least
    twice as long as that of the short one: less could be noise.

    Args:
      backend: where the device is.
      device: full name.
      process: which of the backend's processes runs it, if that can be asked for its memory.

    Raises:
      ApplyError: a step fails, or no chain is long enough.
    """
    flops = {name: 2 * SIDE**3 / _per_op(backend, _matmuls(device, dtype), 1, 4) for name, dtype in _DTYPES.items()}
    workspace = 0
    if process is not None:
        tensors = 3 * SIDE**2 * tf.float64.size  # two operands and a result, of the larger type
        workspace = max(0, _resident_bytes(backend.pids[process]) - tensors)
    return Rates(
        matmul_flops=flops,
        copy_bandwidth=2 * COPY_BYTES / _per_op(backend, _copies(device), 1, 4),
        op_overhead_s=_per_op(backend, _additions(device), _FEW_OPS, _MANY_OPS),
        workspace_bytes=workspace,
    )


def device_model(backend: Backend, device: str) -> str:
    """What to call a device's product; profiles of one model serve all devices of it."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.job == "localhost":
        return gpu_model(spec.device_index) if spec.device_type == "GPU" else read_machine().model
    if not backend.pids:
        return worker_model(getattr(backend, "addresses", ())[spec.task], spec.device_type)
    return machine_gpu_model() if spec.device_type == "GPU" else core_model()


def worker_model(address: str, device_type: str = "CPU") -> str:
    """What to call the product of a worker that is known by its address, "host:port", only: no other host's."""
    return f"the {'processor' if device_type == 'CPU' else device_type} of {split_address(address)[0]}"


def core_model() -> str:
    """The product of a worker started on this machine, which has one core."""
    return f"one core of {read_machine().model}"


def machine_gpu_model() -> str:
    """The product of the GPUs of workers started on this machine; which of several kinds one has is not known."""
    models = {name for name, _ in driver_gpus()}
    return models.pop() if len(models) == 1 else "a GPU of this machine"


def gpu_model(index: int) -> str:
    """The product of this process's GPU."""
    mine = [d for d in tf.config.list_physical_devices("GPU") if d.name.endswith(f"GPU:{index}")]
    return str(tf.config.experimental.get_device_details(mine[0]).get("device_name", "GPU")) if mine else "GPU"


def _per_op(backend: Backend, chain: Any, few: int, many: int) -> float:
    """Seconds of one op."""
    lengths: list[int] = [many * _LONGER**i for i in range(_LENGTHS)]
    for length in lengths:
        timings = time_steps(backend, [chain(few), chain(length)], _REPEATS)
        short_s, long_s = timings.step_s.min(axis=0)
        if long_s >= 2 * short_s:
            return timings.extra_s() / (length - few)
    raise ApplyError(
        f"a step of {lengths[-1]} ops that takes {long_s:.3g} s, and one of {few} ops that takes {short_s:.3g} s",
        "a longer step that takes at least twice as long",
        "Keep the machine free of other work while it is calibrated.",
    )


def _matmuls(device: str, dtype: Any) -> Any:
    return lambda count: _ended(lambda: products(device, count, SIDE, dtype))


def _ended(chain: Any) -> Build:
    return lambda: [chain()[-1].op]


def _copies(device: str) -> Any:
    def chain(count: int) -> list[Any]:
        ends = [value(device, [COPY_BYTES // 4])]
        with tf.device(device):
            for _ in range(count):
                ends.append(tf.negative(ends[-1]))
        return ends

    return lambda count: _ended(lambda: chain(count))


def _additions(device: str) -> Any:
    def chain(count: int) -> list[Any]:
        one = value(device, [])
        ends = [one]
        with tf.device(device):
            for _ in range(count):
                ends.append(tf.add(ends[-1], one))
        return ends

    return lambda count: _ended(lambda: chain(count))


def _resident_bytes(pid: int) -> int:
    """Memory of a process that is in use now; 0 where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    lines = [line for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0
