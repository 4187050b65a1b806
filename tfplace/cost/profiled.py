"""Op seconds from measurements where there are any, and from the analytic roofline for the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfplace.core.arrays import BoolArray, FloatArray
from tfplace.core.costs import CostTable
from tfplace.core.graph import OpGraph
from tfplace.core.topology import Topology
from tfplace.cost.analytic import analytic_costs
from tfplace.cost.profile import DeviceProfile, OpTime, Profile
from tfplace.cost.signature import signatures

PROFILED = "profiled"

BETWEEN = "; "
"""Stands between what is said of an op's time on different devices."""


def profiled_costs(graph: OpGraph, topology: Topology, profile: Profile) -> CostTable:
    """Seconds of every op on every device.

    A device's measurements are those of its `model`. An op they know takes

        trips * (seconds inside the kernel + the executor's overhead)

    where the overhead is what the graph's own step took beyond its kernels, if that step was measured, and else what
    the measured steps took on average. Any other op takes its analytic seconds times the median of measured over
    analytic seconds of the known ops of its class in this graph, and its provenance says so: "analytic:conv x1.8".
    Devices of other models keep the analytic numbers. Replicable constants cost nothing, as everywhere.

    Args:
      graph: [V] ops.
      topology: [D] devices.
      profile: what was measured.

    Raises:
      InputError: as `Profile.check`.
    """
    profile.check(topology)
    known = signatures(graph)
    plain = analytic_costs(graph, topology)
    seconds = plain.compute_s.copy()
    words = [list(plain.provenance) for _ in topology.devices]
    for d, device in enumerate(topology.devices):
        measured = profile.of(device)
        if measured is not None:
            seconds[:, d], words[d] = _column(graph, known, measured, plain.compute_s[:, d], plain.provenance)
    names = topology.device_names
    return CostTable(seconds, tuple(_joined(names, row) for row in zip(*words, strict=True)))


def profiled_share(costs: CostTable) -> float:
    """Fraction of all op seconds, summed over devices, of ops measured on every device."""
    measured = np.array([all(w.startswith(PROFILED) for w in text.split(BETWEEN)) for text in costs.provenance])
    total = float(costs.compute_s.sum())
    return float(costs.compute_s[measured].sum()) / total if total else 1.0


def step_ratio(graph: OpGraph, measured: DeviceProfile) -> float | None:
    """Seconds of all known ops of a graph over those of its measured step; None if that was not measured."""
    step = measured.step(graph.fingerprint)
    if step is None:
        return None
    seconds, _ = _known(graph, [measured.ops.get(signature) for signature in signatures(graph)], measured)
    return float(seconds.sum()) / (step.step_s - step.empty_s)


def overhead_of(graph: OpGraph, measured: DeviceProfile) -> float:
    """Seconds that the executor adds to an execution of an op, as `profiled_costs` counts them."""
    times = [measured.ops.get(signature) for signature in signatures(graph)]
    return _overhead(graph, measured, *_kernel_s(graph, times))


def _column(
    graph: OpGraph,
    known: Sequence[str],
    measured: DeviceProfile,
    analytic_s: FloatArray,
    provenance: Sequence[str],
) -> tuple[FloatArray, list[str]]:
    """[V] seconds on one device, and where each came from."""
    times = [measured.ops.get(signature) for signature in known]
    seconds, here = _known(graph, times, measured)
    scale = _scales(
        seconds[here] / np.maximum(analytic_s[here], 1e-12), [provenance[v] for v in np.flatnonzero(here).tolist()]
    )
    words = list(provenance)
    for v, time in enumerate(times):
        if graph.replicable[v]:
            continue
        if time is not None:
            words[v] = _word(time)
        else:
            factor = scale.get(provenance[v], 1.0)
            seconds[v] = analytic_s[v] * factor
            words[v] += f" x{factor:.2g}" if provenance[v] in scale else ""
    return seconds, words


def _known(graph: OpGraph, times: Sequence[OpTime | None], measured: DeviceProfile) -> tuple[FloatArray, BoolArray]:
    """[V] seconds of the ops that have a time, 0 for others; and which ops have one."""
    kernel_s, here = _kernel_s(graph, times)
    return kernel_s + graph.trips * here * _overhead(graph, measured, kernel_s, here), here


def _kernel_s(graph: OpGraph, times: Sequence[OpTime | None]) -> tuple[FloatArray, BoolArray]:
    """[V] seconds of all executions inside the kernels of ops that have a time, and which have one."""
    here = np.array([t is not None for t in times]) & ~graph.replicable
    return np.array([t.seconds if t is not None else 0.0 for t in times]) * graph.trips * here, here


def _overhead(graph: OpGraph, measured: DeviceProfile, kernel_s: FloatArray, here: BoolArray) -> float:
    """Seconds the executor adds to an execution of an op of this graph."""
    step = measured.step(graph.fingerprint)
    if step is None:
        return measured.overhead_s
    rest = step.step_s - step.empty_s - float(kernel_s.sum())
    return max(0.0, rest / max(float(graph.trips[here].sum()), 1.0))


def _scales(ratio: FloatArray, classes: Sequence[str]) -> dict[str, float]:
    """Class -> median ratio."""
    return {
        name: float(np.median([r for r, c in zip(ratio, classes, strict=True) if c == name])) for name in {*classes}
    }


def _word(time: OpTime) -> str:
    return PROFILED if time.ops == 1 else f"{PROFILED}:pooled over {time.ops}"


def _joined(names: Sequence[str], words: Sequence[str]) -> str:
    """One text for an op's row: devices are named only where they differ."""
    if len({*words}) == 1:
        return words[0]
    where = {word: ",".join(n for n, w in zip(names, words, strict=True) if w == word) for word in words}
    return BETWEEN.join(f"{word} on {devices}" for word, devices in where.items())
