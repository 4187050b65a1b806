"""A topology of the devices as they really are: rates, overheads and links, measured."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import tensorflow as tf

from tfplace.core.device import Device
from tfplace.core.fidelity import MEASURED_ON
from tfplace.core.topology import Topology
from tfplace.cost.calibrate import LinkFit, fit_link
from tfplace.errors import InputError
from tfplace.formatting import format_bytes, format_seconds
from tfplace.measurement.backends.backend import Backend
from tfplace.measurement.calibration.bench import failures_told, process_of
from tfplace.measurement.calibration.machine import read_machine
from tfplace.measurement.calibration.rates import Rates, device_model, measure_rates
from tfplace.measurement.calibration.transfers import SIDE, SIZES, measure_transfers

Progress = Callable[[str, float], None]
"""Told what is being done and which fraction of all is done."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """What was measured.

    Attributes:
      topology: made of it.
      rates: by device name.
      fits: a link's fit for every ordered pair of devices.
    """

    topology: Topology
    rates: dict[str, Rates]
    fits: tuple[LinkFit, ...]


def calibrate(
    backend: Backend,
    *,
    sizes: Sequence[int] = SIZES,
    side: int = SIDE,
    within_one_way: bool = False,
    model: str | None = None,
    topology_name: str = "calibrated",
    progress: Progress | None = None,
) -> Calibration:
    """Measures a backend's devices and the links between them; nothing else should run meanwhile.

    Devices are named by type and number in the backend's order ("CPU:0", "CPU:1"), as `MeasuredEvaluator` maps them.
    CPU devices have this machine's memory in equal parts, since TensorFlow does not tell theirs; GPUs have what it may
    take of them.

    Args:
      backend: from `Cluster.start`, `Cluster.connect` or `LocalDevices`.
      sizes: [S] bytes of the transfers.
      side: of the matrices whose products are computed between two transfers; see
        `tfplace.measurement.calibration.transfers.SIDE`.
      within_one_way: see `fit_link`.
      model: what to call the devices' product; by default what this machine's system says.
      topology_name: for reports.
      progress: told how far it is.

    Raises:
      InputError: fewer than two sizes, or too little memory for so many devices.
      ApplyError: a step fails.
    """
    if len(set(sizes)) < 2:
        raise InputError(f"sizes {list(sizes)}", "at least two different sizes in bytes")
    names = _names(backend.devices)
    memory = dict(zip(names, _memory(backend), strict=True))
    pairs = list(permutations(range(len(names)), 2))
    meter = _Meter(progress, len(names) + len(pairs) * len(sizes))
    rates = {}
    for name, device in zip(names, backend.devices, strict=True):
        meter.tell(f"rates of {name}")
        rates[name] = measure_rates(backend, device, process_of(backend, device))
        _check_memory(memory[name], rates[name].workspace_bytes, len(names))
        meter.advance()
    fits = []
    for a, b in pairs:
        meter.tell(f"transfers {names[a]} -> {names[b]}")
        flops = min(rates[names[end]].matmul_flops["float32"] for end in (a, b))
        times = measure_transfers(
            backend, backend.devices[a], backend.devices[b], flops, sizes=sizes, side=side, progress=meter.advance
        )
        fits.append(fit_link(replace(times, src=names[a], dst=names[b]), within_one_way=within_one_way))
    meter.tell("done")
    devices = [
        _device(name, memory[name], rates[name], model or device_model(backend, device))
        for name, device in zip(names, backend.devices, strict=True)
    ]
    topology = Topology(topology_name, tuple(devices), tuple(fit.link for fit in fits), _source(rates, fits))
    return Calibration(topology, rates, tuple(fits))


def _check_memory(memory_bytes: int, workspace_bytes: int, devices: int) -> None:
    """Says before the transfers, which take long, that there are too many devices for what the machine has.

    Raises:
      InputError: a device's part of the memory has no room for tensors.
    """
    if workspace_bytes >= memory_bytes:
        raise InputError(
            f"{devices} devices with {format_bytes(memory_bytes)} each, of which a process needs "
            f"{format_bytes(workspace_bytes)} besides tensors",
            "fewer devices, or a machine with more memory",
        )


class _Meter:
    """Counts what is done and tells it."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._text = ""

    def tell(self, text: str) -> None:
        self._text = text
        if self._progress is not None:
            self._progress(text, self._done / self._total)

    def advance(self) -> None:
        self._done += 1
        self.tell(self._text)


def _names(devices: Sequence[str]) -> list[str]:
    kinds = [str(tf.DeviceSpec.from_string(device).device_type) for device in devices]
    return [f"{kind}:{kinds[:i].count(kind)}" for i, kind in enumerate(kinds)]


def _memory(backend: Backend) -> list[int]:
    """[D] bytes of the backend's devices."""
    cpus = [_is_cpu(device) for device in backend.devices]
    part = read_machine().memory_bytes // max(sum(cpus), 1)
    limits = {} if all(cpus) else _memory_limits(backend)
    return [part if cpu else limits[device] for device, cpu in zip(backend.devices, cpus, strict=True)]


def _is_cpu(device: str) -> bool:
    return str(tf.DeviceSpec.from_string(device).device_type) == "CPU"


def _memory_limits(backend: Backend) -> dict[str, int]:
    """Bytes that TensorFlow may take of each device; it has a real number for GPUs only.

    Raises:
      ApplyError: nothing can be run there.
    """
    graph = tf.Graph()
    with graph.as_default(), tf.device(backend.devices[0]):
        nothing = tf.no_op()
    with failures_told(backend):
        session = backend.session(graph)
        try:
            session.run(nothing)  # before, a session of workers knows nothing of them
            return {device.name: int(device.memory_limit_bytes) for device in session.list_devices()}
        finally:
            backend.end_session(session)


def _device(name: str, memory_bytes: int, rates: Rates, model: str) -> Device:
    return Device(
        name=name,
        type=name.partition(":")[0],
        memory_bytes=memory_bytes,
        flops=rates.peak_flops,
        memory_bandwidth=rates.copy_bandwidth,
        op_overhead_s=rates.op_overhead_s,
        model=model,
        workspace_bytes=rates.workspace_bytes,
    )


def _source(rates: dict[str, Rates], fits: Sequence[LinkFit]) -> str:
    """What was measured when, and how well the fits describe it."""
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    parts = [f"{MEASURED_ON}{when} with TensorFlow {tf.__version__}"]
    parts.append("flops: MatMul's rate over the fraction of peak that analytic costs assume for it")
    for name, rate in rates.items():
        parts.append(f"{name}: MatMul {rate.matmul_flops['float32'] / 1e9:.1f} GFLOP/s in float32")
    for fit in fits:
        text = f"{fit.link.src} -> {fit.link.dst}: median error {fit.fit_error:.0%} of the one-way time"
        parts.append(text + (f", modelled up to {fit.excess:.0%} above it" if fit.excess > 0 else ""))
    parts.append(
        "memory: CPU devices have this machine's in equal parts, GPUs what TensorFlow may take; workspace: what a "
        "process holds beside tensors"
    )
    return "; ".join(parts)


def describe_fit(fit: LinkFit) -> list[tuple[str, ...]]:
    """A row per size: size, one way, fitted, residual, sender's core, receiver's core, sum of the link's parts."""
    times, fitted = fit.times, fit.one_way(fit.times.size_bytes)
    rows: list[tuple[str, ...]] = []
    for i, size in enumerate(times.size_bytes.tolist()):
        one_way = float(times.one_way_s[i])
        ends = [format_seconds(max(0.0, float(end[i]))) for end in (times.send_s, times.receive_s)]
        residual = f"{fitted[i] / one_way - 1:+.0%}"
        model = format_seconds(float(fit.modelled_s[i]))
        rows.append(
            (format_bytes(size), format_seconds(one_way), format_seconds(float(fitted[i])), residual, *ends, model)
        )
    return rows
