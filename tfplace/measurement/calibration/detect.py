"""The topology of the running TensorFlow. Nothing is timed: rates come from product tables and stated defaults."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfplace.core.device import Device, Link
from tfplace.core.topology import Topology
from tfplace.measurement.calibration.machine import Machine, read_machine
from tfplace.units import parse_bandwidth, parse_bytes, parse_flops

PRODUCTS = Path(__file__).parent / "products.json"

CPU_OVERHEAD_S = 2e-6
GPU_OVERHEAD_S = 5.7e-6
HANDOVER_S = 10e-6
PCIE_BANDWIDTH = 12e9
PCIE_LATENCY_S = 25e-6
UNKNOWN_GPU = {"memory": "8GiB", "flops": {"float32": "10TFLOP/s"}, "memory_bandwidth": "400GB/s"}


def detect_topology() -> Topology:
    """The logical devices of the running TensorFlow, under their short names ("CPU:0", "GPU:1").

    Logical devices of one physical device share its rates and memory, so each is given an equal part. Links are stated
    defaults: a handover within memory between CPU devices, PCIe 3.0 x16 to and between GPUs.
    """
    import tensorflow as tf

    machine = read_machine()
    devices: list[Device] = []
    notes: list[str] = []
    for physical in tf.config.list_physical_devices():
        if physical.device_type not in ("CPU", "GPU"):
            continue
        split = tf.config.get_logical_device_configuration(physical) or [None]
        first = sum(d.type == physical.device_type for d in devices)
        names = [f"{physical.device_type}:{first + i}" for i in range(len(split))]
        if physical.device_type == "CPU":
            found, note = cpu_devices(names, machine)
        else:
            limits = [getattr(part, "memory_limit", None) for part in split]
            found, note = gpu_devices(names, tf.config.experimental.get_device_details(physical), limits)
        devices += found
        notes.append(note)
    running = {d.name.removeprefix("/device:") for d in tf.config.list_logical_devices()}
    devices = [d for d in devices if d.name in running]
    return Topology("this machine", tuple(devices), links_between(devices), "; ".join(notes))


def cpu_devices(names: list[str], machine: Machine) -> tuple[list[Device], str]:
    """The logical CPU devices, each with an equal part of the machine, and how that came about."""
    parts = len(names)
    device: dict[str, Any] = {
        "type": "CPU",
        "memory_bytes": machine.memory_bytes // parts,
        "flops": {"float32": machine.flops / parts, "float64": machine.flops / parts / 2},
        "memory_bandwidth": machine.memory_bandwidth / parts,
        "op_overhead_s": CPU_OVERHEAD_S,
        "model": machine.model,
    }
    share = f", shared equally by {parts} logical devices that really use the same cores" if parts > 1 else ""
    return [Device(name=name, **device) for name in names], f"CPU: {machine.describe()}{share}"


def gpu_devices(names: list[str], details: Mapping[str, Any], limits: list[float | None]) -> tuple[list[Device], str]:
    """The logical devices of one GPU and how their numbers came about.

    Args:
      names: of its logical devices.
      details: from `tf.config.experimental.get_device_details`.
      limits: megabytes (2**20) each logical device was given, or None for all of the rest.
    """
    model = str(details.get("device_name", "unknown GPU"))
    product, known = _product(model)
    memory = _memory_from_driver(model) or parse_bytes(product["memory"])
    parts = len(names)
    device: dict[str, Any] = {
        "type": "GPU",
        "flops": {dtype: parse_flops(rate) / parts for dtype, rate in product["flops"].items()},
        "memory_bandwidth": parse_bandwidth(product["memory_bandwidth"]) / parts,
        "op_overhead_s": GPU_OVERHEAD_S,
        "model": model,
    }
    found = [
        Device(name=name, memory_bytes=int(limit * 2**20) if limit else memory // parts, **device)
        for name, limit in zip(names, limits, strict=True)
    ]
    source = product["source"] if known else "not a known product: default rates of 10 TFLOP/s and 400 GB/s"
    return found, f"{', '.join(names)}: {model}, {source}"


def links_between(devices: list[Device]) -> tuple[Link, ...]:
    """A link for every ordered pair, by the kinds of its ends."""
    links = []
    for a in devices:
        for b in devices:
            if a is b:
                continue
            if a.type == b.type == "CPU":
                links.append(Link(a.name, b.name, a.memory_bandwidth, HANDOVER_S))
            else:
                links.append(Link(a.name, b.name, PCIE_BANDWIDTH, PCIE_LATENCY_S, port="pcie"))
    return tuple(links)


def _product(model: str) -> tuple[dict[str, Any], bool]:
    products = json.loads(PRODUCTS.read_text())
    for product in products.values():
        if any(text.lower() in model.lower() for text in product["match"]):
            return product, True
    return dict(UNKNOWN_GPU), False


def _memory_from_driver(model: str) -> int | None:
    """Bytes of the first GPU of that model, since TensorFlow's public API does not tell."""
    return next((size for name, size in driver_gpus() if name == model), None)


def driver_gpus() -> list[tuple[str, int]]:
    """Model and bytes of each GPU that `nvidia-smi` lists, whatever this process sees of them; none without it."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    listed = [(name.strip(), size.strip()) for name, _, size in (line.rpartition(",") for line in lines)]
    return [(name, int(size) * 2**20) for name, size in listed if size.isdigit()]
